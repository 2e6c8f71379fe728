"""The layers of settings, what stops a start, and what may not be shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.config import settings as settings_module
from penstock.config.keys import KEYS, hide_passwords
from penstock.config.settings import Address, Settings, SettingsError, load, to_environ, value_of

SAMPLES: Mapping[str, str] = {
    "listen": "[::1]:9000",
    "data_dir": "/var/lib/penstock",
    "broker_url": "nats://a:4222,tls://b:4222",
    "broker_port": "4333",
    "broker_user": "ann",
    "broker_password": "pa ss,word",
    "broker_token": "t",
    "broker_nkey_seed": "seed.nk",
    "broker_credentials": "user.creds",
    "broker_tls_ca": "ca.pem",
    "broker_tls_cert": "cert.pem",
    "broker_tls_key": "key.pem",
    "monitor_port": "8222",
    "max_store_bytes": "1000000001",
    "fsync": "always",
    "leaf_remotes": "nats-leaf://u:p@hub1:7422,hub2:7422",
    "leaf_credentials": "hub.creds",
    "replicas": "3",
    "history_max_age": "7d12h",
    "history_max_bytes": "5GiB",
    "runs_max_age": "1500ms",
    "archive_after": "7d",
    "shards": "7",
    "http_workers": "9",
    "api_token": "a",
    "insecure": "true",
    "cors_origins": "https://console.example.org,http://localhost:3000",
    "bridge_token": "b",
    "webhook_secret": "w",
    "builtin_workers": "http",
    "http_allow": "10.0.0.0/8,[::1]:80,build.internal:443",
    "http_slots": "7",
    "secrets_dir": "/run/secrets",
    "telemetry_sample_ratio": "0.25",
    "otlp_endpoint": "https://collector.example.org:4318/otlp",
    "otlp_headers": "authorization=Bearer%20abc%2C%3D,x-tenant=one",
    "log_level": "debug",
    "log_format": "json",
}
BAD: Mapping[str, tuple[str, ...]] = {
    "listen": ("8080", ":0", ":70000", "::1:80", "a b:80", "[::1]", "http://x:1", ""),
    "broker_url": ("http://x", "nats://", "nats://a b", "nats://a,,nats://b"),
    "broker_port": ("0", "65536", "-1", "4222.0", " 4222", "x", ""),
    "monitor_port": ("-1", "on"),
    "max_store_bytes": ("0", "-5", "ten", "1e9", ""),
    "fsync": ("never", "Always", ""),
    "leaf_remotes": (",", ",".join(["nats-leaf://h"] * 11)),
    "replicas": ("0", "6"),
    "history_max_age": ("24", "4s", "-1d", "9999999d"),
    "shards": ("0", "33"),
    "http_workers": ("0",),
    "api_token": ("a\nb",),
    "insecure": ("maybe", "2", " true", ""),
    "cors_origins": ("*", "console.example.org", "https://console.example.org/", "https://a b", "https://u@h", "null"),
    "builtin_workers": ("https", "http,other", "HTTP"),
    "http_allow": ("10.0.0.1/8", "*.internal", "host:0", "http://host", "127.1", "a b", "10.0.0.0/8,x/y"),
    "http_slots": ("0", "1001", ""),
    "telemetry_sample_ratio": ("-0.1", "1.01", "1%", "nan", "1e-2", ""),
    "otlp_endpoint": ("collector:4318", "grpc://h:4317", "http://", "http://u:p@h", "http://h/?a=b", "http://a b"),
    "otlp_headers": ("x", "=y", "a b=c", "a=%0A", "a=%FF", "a=b,,c=d"),
    "log_level": ("loud",),
    "log_format": ("xml",),
}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(**layers: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**{"environ": {}, **layers})  # type: ignore[arg-type]
    return str(caught.value)


def test_without_any_layer_everything_is_default() -> None:
    settings, sources = load({}, {})
    assert Settings() == settings
    assert {"default"} == set(sources.values())
    assert Address("0.0.0.0", 8080) == settings.http.listen


def test_each_layer_wins_over_the_next(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("broker_port = 1111\nmonitor_port = 1112\ndata_dir = 'from-file'\n")
    environ = {"SERVICE_BROKER_PORT": "2221", "SERVICE_MONITOR_PORT": "2222"}
    settings, sources = load({"broker_port": "3331"}, environ, file)
    broker = settings.broker
    assert (3331, 2222, "from-file") == (broker.port, broker.monitor_port, broker.data_dir)
    assert ("flag", "environment SERVICE_MONITOR_PORT") == (sources["broker_port"], sources["monitor_port"])
    assert (f"file {file}", "default") == (sources["data_dir"], sources["fsync"])


def test_toml_values_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        'max_store_bytes = 5000\nleaf_remotes = ["h1:7422", "h2:7422"]\nshards = "2"\nhistory_max_age = "24h"\n'
    )
    settings = load({}, {}, file).settings
    assert (5000, ("h1:7422", "h2:7422")) == (settings.broker.max_store_bytes, settings.broker.leaf_remotes)
    assert (2, 86400.0) == (settings.engine.shards, settings.broker.history_max_age)


def test_file_in_the_current_directory_is_read_unless_another_is_named(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("shards = 3")
    (tmp_path / "other.toml").write_text("shards = 4")
    assert 3 == load({}, {}).settings.engine.shards
    assert 4 == load({}, {"SERVICE_CONFIG": "other.toml"}).settings.engine.shards
    assert 4 == load({}, {"SERVICE_CONFIG": "penstock.toml"}, Path("other.toml")).settings.engine.shards
    assert "default" == load({}, {"SERVICE_CONFIG": ""}).sources["shards"]


def test_file_that_is_missing_or_broken_stops_the_start(tmp_path: Path) -> None:
    assert "file no.toml cannot be read: No such file or directory" == refusal(file=Path("no.toml"))
    (tmp_path / "bad.toml").write_text("shards = \n")
    assert refusal(file=Path("bad.toml")).startswith("file bad.toml is not TOML: Invalid value (at line 1")


def test_unknown_key_is_named_with_its_origin_and_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("brokr_url = 'nats://h'")
    message = refusal()
    (tmp_path / "penstock.toml").unlink()
    assert message.startswith(
        "unknown setting 'brokr_url' (file penstock.toml): did you mean broker_url? allowed are listen, data_dir"
    )
    assert "unknown setting 'SERVICE_SHARD' (environment): did you mean SERVICE_SHARDS?" in refusal(
        environ={"SERVICE_SHARD": "2"}
    )
    assert "unknown setting 'SERVICE_shards'" in refusal(environ={"SERVICE_shards": "2"})
    assert "unknown setting 'nope' (flag)" in refusal(flags={"nope": "2"})


def test_table_in_the_file_is_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[broker]\nport = 1")
    assert "unknown setting 'broker'" in refusal()


def test_variables_of_the_command_line_are_no_settings() -> None:
    assert "default" == load({}, {"SERVICE_URL": "http://x", "PATH": "/bin", "OTHER_SERVICE_X": "1"}).sources["listen"]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_bad_value_is_refused_in_one_line_with_key_origin_and_what_is_allowed(name: str, text: str) -> None:
    message = refusal(environ={KEYS[name].variable: text})
    assert message.startswith(f"{name} = ")
    assert f"(environment SERVICE_{name.upper()}) is not allowed: it must be {KEYS[name].kind.allowed}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_a_switch_is_turned_by_words_and_by_toml(text: str, expected: bool, tmp_path: Path) -> None:
    assert expected == load({}, {"SERVICE_INSECURE": text}).settings.http.insecure
    (tmp_path / "penstock.toml").write_text(f"insecure = {str(expected).lower()}")
    assert expected == load({}, {}).settings.http.insecure


def test_origins_may_be_a_list_and_are_in_lower_case_as_browsers_send_them(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('cors_origins = ["https://Console.example.org", "http://localhost:3000"]')
    assert ("https://console.example.org", "http://localhost:3000") == load({}, {}).settings.http.cors_origins
    assert () == load({}, {"SERVICE_CORS_ORIGINS": ""}).settings.http.cors_origins


def test_what_http_steps_may_reach_is_a_list_or_text(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('http_allow = ["10.0.0.0/8", "Build.internal:443", "[::1]:80"]')
    expected = ("10.0.0.0/8", "build.internal:443", "[::1]:80")
    settings = load({}, {}).settings
    assert expected == settings.http_tasks.allow
    assert expected == load({}, to_environ(settings)).settings.http_tasks.allow
    assert () == load({}, {"SERVICE_HTTP_ALLOW": ""}).settings.http_tasks.allow


def test_builtin_workers_are_none_unless_asked_for() -> None:
    assert () == load({}, {}).settings.engine.builtin_workers
    assert ("http",) == load({}, {"SERVICE_BUILTIN_WORKERS": "http,http"}).settings.engine.builtin_workers


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "protected"),
        ({"insecure": "1"}, "insecure"),
        ({"api_token": "t"}, "token"),
        ({"api_token": "t", "insecure": "1"}, "token"),
    ],
)
def test_a_token_goes_before_insecure(given: dict[str, str], mode: str) -> None:
    assert mode == load(given, {}).settings.http.mode


@pytest.mark.parametrize("value", ["true", "1.5", "[1]", "2020-01-01", "{a = 1}"])
@pytest.mark.parametrize("name", KEYS)
def test_toml_value_of_another_type_is_refused(name: str, value: str, tmp_path: Path) -> None:
    if (name, value) == ("insecure", "true"):
        return
    (tmp_path / "penstock.toml").write_text(f"{name} = {value}")
    assert refusal().startswith(f"{name} = ")


def test_empty_text_means_not_set_and_hides_lower_layers(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("history_max_age = '7d'\napi_token = 'x'")
    settings = load({}, {"SERVICE_HISTORY_MAX_AGE": "", "SERVICE_API_TOKEN": ""}).settings
    assert (None, None) == (settings.broker.history_max_age, settings.http.api_token)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"SERVICE_BROKER_USER": "ann"},
            "broker_user = 'ann' (environment SERVICE_BROKER_USER) is not allowed: it must be set together",
        ),
        ({"SERVICE_BROKER_TLS_KEY": "k"}, "set together with broker_tls_cert"),
        ({"SERVICE_LEAF_CREDENTIALS": "c"}, "set together with leaf_remotes"),
        ({"SERVICE_REPLICAS": "3"}, "1 for the embedded broker"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ: dict[str, str], message: str) -> None:
    assert message in refusal(environ=environ)


def test_secrets_are_never_shown() -> None:
    secret_keys = [key for key in KEYS.values() if key.secret]
    assert {"broker_password", "broker_token", "api_token", "bridge_token", "webhook_secret", "otlp_headers"} == {
        key.name for key in secret_keys
    }
    for key in secret_keys:
        assert "hush" not in refusal(environ={key.variable: "hush\x00"})
        assert "(set)" == key.shown("hush")
        assert "" == key.shown(None)
    assert "hush" not in refusal(environ={"SERVICE_BROKER_PASWORD": "hush"})
    assert "hush" not in refusal(environ={"SERVICE_BROKER_URL": "http://u:hush@h"})
    assert "hush" not in refusal(environ={"SERVICE_BROKER_PASSWORD": "hush"})


def test_headers_of_the_export_are_names_and_values() -> None:
    headers = load(SAMPLES, {}).settings.telemetry.otlp_headers
    assert (("authorization", "Bearer abc,="), ("x-tenant", "one")) == headers
    assert "otlp_endpoint" in refusal(environ={"SERVICE_OTLP_HEADERS": "a=b"})


def test_an_export_without_its_extra_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings_module, "OTLP_MODULES", ("opentelemetry.sdk", "opentelemetry.exporter.absent.http"))
    told = refusal(environ={"SERVICE_OTLP_ENDPOINT": "http://localhost:4318"})
    assert told.endswith("must be left out, or its extra be installed: pip install 'penstock[otel]'")
    assert Settings() == load({}, {}).settings, "nobody needs it who does not export"


def test_passwords_inside_addresses_are_hidden() -> None:
    assert "nats://***@h:1,tls://h2,nats://***@h3" == hide_passwords("nats://u:p@h:1,tls://h2,nats://u:p@q@h3")
    assert "***@h" == hide_passwords("u:p@h")


def test_samples_cover_every_key() -> None:
    assert set(KEYS) == set(SAMPLES)


def test_a_child_process_loads_the_same_settings_from_to_environ(tmp_path: Path) -> None:
    settings = load(SAMPLES, {}).settings
    (tmp_path / "penstock.toml").write_text("shards = 2\nhistory_max_age = '1d'")
    assert settings == load({}, to_environ(settings)).settings
    assert Settings() == load({}, to_environ(Settings())).settings
    assert all(value_of(settings, key) != value_of(Settings(), key) for key in KEYS.values())


def test_every_field_of_the_tree_has_its_key() -> None:
    settings = Settings()
    fields = {
        (section, field)
        for section in settings.__struct_fields__
        for field in getattr(settings, section).__struct_fields__
    }
    assert fields == {(key.section, key.field) for key in KEYS.values()}
