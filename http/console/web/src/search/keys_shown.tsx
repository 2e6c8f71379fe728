/** All keys, in a dialog. */

import { useEffect, useRef } from "preact/hooks";
import { EVERYWHERE, opened, pageKeys } from "../shell/keys";
import { PAGES } from "../shell/layout";

export function KeysShown() {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  const own = pageKeys.value.map((one) => [one.key, one.label] as const);
  return (
    <dialog ref={box} class="keys" aria-labelledby="keys-title" onClose={() => (opened.value = null)} onClick={(event) => event.target === box.current && box.current?.close()}>
      <h2 id="keys-title">Keys</h2>
      <div class="keys-groups">
        {own.length > 0 && <Group title="On this page" keys={own} />}
        <Group title="Everywhere" keys={EVERYWHERE} />
        <Group title="Go to" keys={PAGES.map((page) => [`g ${page.key}`, page.label] as const)} />
      </div>
      <div class="dialog-buttons">
        <button type="button" onClick={() => box.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  );
}

function Group({ title, keys }: { title: string; keys: readonly (readonly [string, string])[] }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>
        {keys.map(([key, label]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
