// Files that somebody drops, pastes or chooses become a part of the prompt. The server reads attachments from its own
// file system only, so the page can send texts and no images.
import { useRef } from "preact/hooks";
import { intoPrompt } from "./draft";
import { bytes } from "./format";
import { Icon } from "./icons";
import { openID, refusal } from "./store";

const longest = 64 << 10; // bytes of a file

/** attach puts texts into the prompt, and says which files it cannot take. */
export async function attach(files: readonly File[]): Promise<void> {
  const id = openID.peek(); // the files are read only after this
  const refused: string[] = [];
  let added = "";
  for (const file of files) {
    const text = file.size > longest ? "" : await read(file);
    if (file.size > longest) {
      refused.push(`${file.name} has ${bytes(file.size)}; a prompt takes files of at most ${bytes(longest)}.`);
    } else if (text === null) refused.push(`${file.name} is not a text.`);
    else added += fenced(file.name, text);
  }
  if (refused.length > 0) refused.push("The agent can read files in its workspace: write @ and the name of one.");
  refusal.value = refused.join(" ");
  intoPrompt(added, id);
}

/** read returns the text of a file, and null if it is not UTF-8 or has a NUL. */
async function read(file: File): Promise<string | null> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null; // not UTF-8, or a folder
  }
}

function fenced(name: string, text: string): string {
  const ticks = Math.max(2, ...[...text.matchAll(/`+/g)].map((m) => m[0].length));
  const fence = "`".repeat(ticks + 1);
  return `${name}:\n${fence}\n${text.replace(/\n?$/, "\n")}${fence}\n\n`;
}

/** fileEvents are the handlers of an element that takes files. */
export const fileEvents = {
  onDragOver(e: DragEvent) {
    if (e.dataTransfer?.types.includes("Files")) e.preventDefault();
  },
  onDrop(e: DragEvent) {
    take(e, e.dataTransfer);
  },
  onPaste(e: ClipboardEvent) {
    if (!e.clipboardData?.types.includes("text/plain")) take(e, e.clipboardData);
  },
};

function take(e: Event, from: DataTransfer | null): void {
  if (!from?.files.length) return;
  e.preventDefault();
  void attach([...from.files]);
}

export function AttachButton() {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        onChange={(e) => {
          void attach([...(e.currentTarget.files ?? [])]);
          e.currentTarget.value = "";
        }}
      />
      <button
        type="button"
        class="button quiet square"
        aria-label="Add a text file to the prompt"
        title="Add a text file"
        onClick={() => input.current!.click()}
      >
        <Icon sign="clip" />
      </button>
    </>
  );
}
