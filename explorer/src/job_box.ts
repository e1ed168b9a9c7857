// SPDX-License-Identifier: Apache-2.0
// A running job: how far it is, and a button that stays where it is while it runs.

import { button, h } from "./dom";
import type { JobInfo } from "./schema";
import { store } from "./store";

const boxes = new Map<number, { element: HTMLElement; bar: HTMLProgressElement; text: HTMLElement }>();

/** Progress of a running job, and a button that cancels it: one element for each job. */
export function jobBox(job: JobInfo): HTMLElement {
  let box = boxes.get(job.id);
  if (!box) {
    const bar = h("progress");
    const text = h("span");
    const stop = button("Cancel", () => void store.cancel(job));
    const element = h("div", { class: "job" }, h("div", { class: "progress", role: "status" }, bar, text), stop);
    boxes.set(job.id, (box = { element, bar, text }));
  }
  if (job.total > 0) {
    box.bar.max = job.total;
    box.bar.value = job.done;
  }
  box.text.textContent = `${job.phase}${job.total > 0 ? ` ${job.done}/${job.total}` : ""}, ${job.seconds.toFixed(0)} s`;
  return box.element;
}

/** What of a job changes the page around its box. */
export function jobKey(kind: string): string {
  const job = store.jobs.get(kind);
  return job ? `${job.id} ${job.state}` : "";
}
