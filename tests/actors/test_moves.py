"""What a shard plans about its partitions: a table of situations, and properties that hold in all of them."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.actors.ownership.moves import Mine, Moves, plan, wanted_partitions, willing_places
from penstock.actors.ownership.placement import placed
from penstock.broker import names
from penstock.broker.records.owners import Claim, Claimed, Listed, Member, View
from penstock.config.limits import PARTITIONS

A, B, C = (Member(name, f"place-{name}", engine=f"engine-{name}") for name in "abc")
EVERY = range(PARTITIONS)
OF_A = placed({A.place, B.place})[A.place]
OF_B = placed({A.place, B.place})[B.place]
ONE = min(OF_A)
COMMON = names.common_consumer(5)
OWN = names.engine_consumer(ONE, 4)


def view(members: Iterable[Member], owners: dict[int, str] | None = None, drained: Iterable[str] = ()) -> View:
    """The living shards, the owner of each claim (empty: handed over), and the engines that are drained."""
    claims = {number: Claimed(Claim(owner=owner), 1) for number, owner in (owners or {}).items()}
    return View({one.id: Listed(one, 1) for one in members}, claims, frozenset(drained))


def has(
    numbers: Iterable[int] = (),
    *,
    member: Member = A,
    working: Iterable[int] | None = None,
    unresponsive: Iterable[int] = (),
    settled: bool = True,
    calm: bool = False,
    common: Iterable[int] = (),
) -> Mine:
    """A shard with claims to these partitions, working on the same ones unless told otherwise. The claims of `common`
    name a common consumer."""
    named = set(common)
    claims = {n: Claimed(Claim(owner=member.id, consumer=COMMON if n in named else OWN), 1) for n in numbers}
    return Mine(member, claims, set(claims if working is None else working), set(unresponsive), settled, calm)


def test_a_shard_that_is_alone_takes_everything_by_one_consumer() -> None:
    assert Moves(unite=True) == plan(view([A]), has())


def test_a_shard_that_the_view_does_not_list_yet_counts_as_a_member() -> None:
    assert Moves(take=tuple(sorted(OF_A))) == plan(view([B]), has())


def test_partitions_of_another_living_shard_are_not_taken_before_it_hands_them_over() -> None:
    owners = dict.fromkeys(EVERY, B.id)
    assert Moves() == plan(view([A, B], owners), has())
    assert Moves(take=(ONE,)) == plan(view([A, B], {**owners, ONE: ""}), has())


def test_claims_of_a_shard_that_is_gone_are_taken() -> None:
    owners = dict.fromkeys(OF_A, A.id) | dict.fromkeys(OF_B, B.id)
    assert Moves(take=tuple(sorted(OF_B))) == plan(view([A], owners), has(OF_A))
    assert Moves(unite=True) == plan(view([A], dict.fromkeys(EVERY, B.id)), has())


def test_a_shard_that_has_everything_for_a_while_goes_on_by_one_consumer() -> None:
    owners = dict.fromkeys(EVERY, A.id)
    assert Moves() == plan(view([A], owners), has(EVERY))
    assert Moves(unite=True) == plan(view([A], owners), has(EVERY, calm=True))
    assert Moves(unite=True) == plan(view([A], owners), has(EVERY, calm=True, common=OF_A))
    assert Moves() == plan(view([A], owners), has(EVERY, calm=True, common=EVERY))


def test_claims_by_a_common_consumer_that_nobody_reads_are_written_again() -> None:
    assert Moves(unite=True) == plan(view([A], dict.fromkeys(EVERY, A.id)), has(EVERY, working=(), common=EVERY))


def test_who_shall_not_have_everything_parts_with_the_common_consumer() -> None:
    rest = tuple(sorted(OF_A - {ONE}))
    owners = dict.fromkeys(OF_A - {ONE}, A.id) | dict.fromkeys(OF_B | {ONE}, B.id)
    assert Moves(part=rest) == plan(view([A, B], owners), has(rest, working=(), common=rest))
    owners = dict.fromkeys(EVERY, A.id)
    assert Moves(hand_over=tuple(sorted(OF_B)), part=tuple(sorted(OF_A))) == plan(
        view([A, B], owners), has(EVERY, common=EVERY)
    )


def test_before_the_members_have_settled_the_common_consumer_stays() -> None:
    mine = has(EVERY, common=EVERY, settled=False)
    assert Moves(postponed=True) == plan(view([A, B], dict.fromkeys(EVERY, A.id)), mine)
    lost = has(EVERY, common=EVERY, settled=False, working=set(EVERY) - {ONE})
    assert Moves(postponed=True) == plan(view([A, B], dict.fromkeys(EVERY, A.id)), lost)


def test_a_common_consumer_that_does_not_answer_is_replaced_for_each_partition() -> None:
    mine = has(EVERY, common=EVERY, unresponsive=EVERY, calm=True)
    assert Moves(replace_consumer=tuple(EVERY)) == plan(view([A], dict.fromkeys(EVERY, A.id)), mine)


def test_with_one_partition_that_is_to_be_replaced_the_others_part() -> None:
    mine = has(EVERY, common=EVERY, unresponsive=[ONE], calm=True)
    rest = tuple(number for number in EVERY if number != ONE)
    assert Moves(replace_consumer=(ONE,), part=rest) == plan(view([A], dict.fromkeys(EVERY, A.id)), mine)


def test_a_claim_without_work_is_taken_up_again() -> None:
    owners = dict.fromkeys(EVERY, A.id)
    assert Moves(take=(ONE,)) == plan(view([A], owners), has(EVERY, working=set(EVERY) - {ONE}))


def test_what_another_shall_have_is_handed_over_once_the_members_have_settled() -> None:
    both, owners = [A, B], dict.fromkeys(EVERY, A.id)
    assert Moves(hand_over=tuple(sorted(OF_B))) == plan(view(both, owners), has(EVERY))
    assert Moves(postponed=True) == plan(view(both, owners), has(EVERY, settled=False))


def test_free_partitions_are_taken_before_the_members_have_settled() -> None:
    assert Moves(take=tuple(sorted(OF_A))) == plan(view([A, B]), has(settled=False))


def test_a_draining_shard_hands_everything_over_without_waiting() -> None:
    draining, owners = replace(A, draining=True), dict.fromkeys(EVERY, A.id)
    mine = has(EVERY, member=draining, settled=False)
    assert Moves(hand_over=tuple(EVERY)) == plan(view([draining, B], owners), mine)


def test_a_shard_of_a_drained_engine_takes_nothing_and_others_do_not_count_it() -> None:
    seen = view([A, B], drained=[A.engine])
    assert Moves() == plan(seen, has())
    assert Moves(unite=True) == plan(seen, has(member=B))
    assert {B.place} == willing_places(seen, A)


def test_an_unresponsive_consumer_is_replaced_and_its_partition_is_not_taken_at_the_same_time() -> None:
    owners = dict.fromkeys(EVERY, A.id)
    mine = has(EVERY, working=set(EVERY) - {ONE}, unresponsive=[ONE])
    assert Moves(replace_consumer=(ONE,)) == plan(view([A], owners), mine)


def test_a_partition_that_is_handed_over_keeps_its_unresponsive_consumer() -> None:
    owners = dict.fromkeys(EVERY, A.id)
    lost = min(OF_B)
    mine = has(EVERY, unresponsive=[lost])
    assert Moves(hand_over=tuple(sorted(OF_B))) == plan(view([A, B], owners), mine)


def test_a_shard_that_has_just_withdrawn_is_not_counted_by_what_the_view_still_says_of_it() -> None:
    assert {B.place} == willing_places(view([A, B]), replace(A, draining=True))


def test_two_lives_in_one_place_have_one_share() -> None:
    again = replace(B, id="b2")
    assert OF_A == wanted_partitions(view([A, B, again]), A)


NUMBERS = st.integers(0, PARTITIONS - 1)


@st.composite
def situations(draw: st.DrawFn) -> tuple[View, Mine]:
    """Any view, with claims of members, of shards that are gone and of nobody; this shard's own are in it."""
    others = draw(
        st.lists(st.sampled_from([B, C, replace(B, draining=True)]), max_size=2, unique_by=lambda one: one.id)
    )
    me = draw(st.sampled_from([A, replace(A, draining=True)]))
    every = st.sampled_from([dict.fromkeys(EVERY, A.id), dict.fromkeys(EVERY, "")])
    owners = draw(st.dictionaries(NUMBERS, st.sampled_from(["", A.id, B.id, C.id, "gone"])) | every)
    drained = draw(st.sets(st.sampled_from([A.engine, B.engine]), max_size=1))
    own = [number for number, owner in owners.items() if owner == A.id]
    kept = st.sets(st.sampled_from(own)) | st.just(set(own)) if own else st.just(set[int]())
    settled = draw(st.booleans())
    mine = has(
        own,
        member=me,
        working=draw(kept),
        unresponsive=draw(kept),
        settled=settled,
        calm=settled and draw(st.booleans()),
        common=draw(kept),
    )
    return view([me, *others], owners, drained), mine


@given(situations())
def test_no_partition_is_in_two_moves(situation: tuple[View, Mine]) -> None:
    moves = plan(*situation)
    numbers = [*moves.take, *moves.hand_over, *moves.replace_consumer, *moves.part]
    assert len(set(numbers)) == len(numbers)
    assert not (moves.unite and numbers)


@given(situations())
def test_only_what_is_wanted_and_no_other_living_shard_owns_is_taken(situation: tuple[View, Mine]) -> None:
    seen, mine = situation
    taken = plan(seen, mine).take
    owners = {seen.claims[number].claim.owner for number in taken if number in seen.claims}
    assert set(taken) <= wanted_partitions(seen, mine.member) - set(mine.working)
    assert not owners & (seen.members.keys() - {A.id})


@given(situations())
def test_one_consumer_reads_all_or_none_of_the_partitions(situation: tuple[View, Mine]) -> None:
    """Who takes a partition does not take it by a common consumer: only `unite` makes one, and only of a shard that
    shall have everything, and that nobody else has any of."""
    seen, mine = situation
    moves = plan(seen, mine)
    common = {number for number, claimed in mine.claims.items() if claimed.claim.consumer == COMMON}
    assert not set(moves.take) & common
    if moves.unite:
        assert wanted_partitions(seen, mine.member) == set(EVERY)
        assert not {claimed.claim.owner for claimed in seen.claims.values()} & (seen.members.keys() - {A.id})
    elif not moves.postponed and not common == set(mine.working) == set(EVERY):
        assert common <= {*moves.part, *moves.replace_consumer, *moves.hand_over}


@given(situations())
def test_only_own_claims_are_handed_over_or_get_another_consumer(situation: tuple[View, Mine]) -> None:
    seen, mine = situation
    moves = plan(seen, mine)
    wanted = wanted_partitions(seen, mine.member)
    assert set(moves.hand_over) <= mine.claims.keys() - wanted
    assert set(moves.replace_consumer) <= mine.claims.keys() & wanted & set(mine.unresponsive)
    assert set(moves.part) <= mine.claims.keys() & wanted - set(mine.unresponsive)
    assert not (moves.postponed and moves.hand_over)


@given(situations())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(situation: tuple[View, Mine]) -> None:
    seen, mine = situation
    moves = plan(seen, mine)
    kept = set(EVERY) if moves.unite else (mine.claims.keys() | set(moves.take)) - set(moves.hand_over)
    common = {number for number, claimed in mine.claims.items() if claimed.claim.consumer == COMMON}
    common = kept if moves.unite else common - {*moves.part, *moves.replace_consumer, *moves.hand_over}
    claims = {number: Claimed(Claim(owner=A.id), 2) for number in kept}
    released = {number: Claimed(Claim(), 2) for number in moves.hand_over}
    working = kept - common if moves.postponed else kept
    after = has(kept, member=mine.member, working=working, settled=mine.settled, common=common)
    again = plan(seen._replace(claims={**seen.claims, **claims, **released}), after)
    assert Moves(postponed=moves.postponed) == again
