// A dialog over the page. Escape and a click beside it close it.

type Props = {
  class?: string;
  label: string;
  close: () => void;
  children: preact.ComponentChildren;
};

export function Dialog({ class: look, label, close, children }: Props) {
  return (
    <dialog
      class={look}
      aria-label={label}
      ref={(d) => {
        if (d && !d.open) d.showModal();
      }}
      onClose={close}
      onClick={(e) => {
        if (e.target === e.currentTarget) close();
      }}
    >
      {children}
    </dialog>
  );
}
