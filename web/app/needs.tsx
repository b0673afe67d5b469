// A line for those who do not drive, where something needs control.
import { who } from "./format";
import { act, control, people, role } from "./store";

/** NeedsControl says why files and commands are not available, and offers to ask for control. */
export function NeedsControl({ what }: { what: string }) {
  const { mine, holder, asked } = control.value;
  if (role.value !== "controller") {
    return <p class="needs-control">Only the person who drives can {what}. Your link does not let you drive.</p>;
  }
  if (mine || holder === null) return null;
  const name = who(people.value?.controller);
  return (
    <p class="needs-control" role="status">
      <span class="grow">
        {name} drives. Only the person who drives can {what}.{asked && ` You have asked ${name} for control.`}
      </span>
      {!asked && (
        <button type="button" class="button" onClick={() => void act((s) => s.lease.ask())}>
          Ask for control
        </button>
      )}
    </p>
  );
}
