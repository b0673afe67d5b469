// The plan of the agent while it works: one line that opens.
import { plan, type Plan } from "./agent";
import { Icon, type Outcome } from "./icons";
import { busy } from "./store";

const signs: Record<Plan["steps"][number]["state"], Outcome> = {
  done: { sign: "check", tone: "good", word: "done" },
  doing: { sign: "run", tone: "spin", word: "being done" },
  open: { sign: "open", tone: "", word: "open" },
};

export function PlanLine() {
  const p = plan.value;
  if (!p || !busy.value) return null;
  const doing = p.steps.find((s) => s.state === "doing");
  return (
    <details class="plan">
      <summary>
        <b>
          Plan, {p.done} of {p.steps.length} done
        </b>
        <span class="cut grow">{doing?.text}</span>
        <Icon sign="down" />
      </summary>
      <ol>
        {p.steps.map(({ text, state }, i) => (
          <li key={i}>
            <Icon sign={signs[state].sign} tone={signs[state].tone} label={signs[state].word} />
            <span>{text}</span>
          </li>
        ))}
      </ol>
    </details>
  );
}
