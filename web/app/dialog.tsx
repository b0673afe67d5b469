// A dialog over the page. Escape and a click beside it close it.
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icons";

type Props = {
  class?: string;
  label: string;
  close: () => void;
  children: preact.ComponentChildren;
};

export function Dialog({ class: look, label, close, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const beside = useRef(false); // the pointer went down there, and not to select a text of the dialog
  useLayoutEffect(() => {
    const d = dialog.current!;
    d.showModal();
    return () => d.close(); // gives the focus back
  }, []);
  return (
    <dialog
      class={look}
      aria-label={label}
      ref={dialog}
      onClose={close}
      onPointerDown={(e) => {
        beside.current = e.target === e.currentTarget;
      }}
      onClick={(e) => {
        if (beside.current && e.target === e.currentTarget) close();
      }}
    >
      {children}
    </dialog>
  );
}

export function DialogHead({ title, close }: { title: string; close: () => void }) {
  return (
    <header>
      <h2 tabIndex={-1} autofocus>
        {title}
      </h2>
      <button type="button" class="button quiet square" aria-label="Close" onClick={close}>
        <Icon sign="cross" />
      </button>
    </header>
  );
}
