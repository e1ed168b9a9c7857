// SPDX-License-Identifier: Apache-2.0
// Where answers come from: the server, or the page itself if it is a single file.

import type { Action, ErrorInfo, JobInfo, PointInfo, State } from "./schema";

export class RequestError extends Error {
  constructor(readonly kind: string, message: string) {
    super(message);
  }
}

/** The server does not answer. */
export class LostError extends Error {}

const embedded = document.getElementById("answers");
const answers: Record<string, unknown> | null = embedded ? JSON.parse(embedded.textContent!) : null;

/** Whether this is a single file, which cannot decide. */
export const isReadOnly = answers !== null;

/** Whether a single file has results to show. */
export const hasKeptResults = answers !== null && (answers["results"] as { kind: string }).kind !== "none";

/** A single file has the answers that differ by decision point in a list. */
const stops = (answers?.["stops"] ?? []) as Record<string, unknown>[];
let stop = 0;

/** The decision points of a single file. */
export const keptStops: PointInfo[] = stops.map((each) => (each["state"] as State).point);

/** The number of the decision point that a single file shows. */
export function shownStop(): number {
  return stop;
}

/** Shows another decision point of a single file; whether there is one of that number. */
export function showStop(number: number): boolean {
  if (!(number in stops)) return false;
  stop = number;
  return true;
}

function kept(name: string): unknown {
  return stops[stop]?.[name] ?? answers![name];
}

export function hasAnswer(path: string): boolean {
  return answers === null || kept(path) !== undefined;
}

export async function get<T>(path: string, params: Record<string, string | number> = {}): Promise<T> {
  const query = Object.entries(params).map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
  const name = query ? `${path}?${query}` : path;
  if (answers !== null) {
    if (hasAnswer(name)) return kept(name) as T;
    throw new RequestError("NotKept", "this page is a single file, which does not hold this; run hloenv explore");
  }
  return request<T>(`api/${name}`, { method: "GET" });
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  if (answers !== null) {
    throw new RequestError("ReadOnly", "this page is a single file and read-only; run hloenv explore to decide");
  }
  return request<T>(`api/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function request<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new LostError("the server does not answer");
  }
  const value = await response.json().catch(() => {
    throw new LostError("the server's answer was cut off");
  });
  if (!response.ok) {
    const info = value as ErrorInfo;
    throw new RequestError(info.error, info.message);
  }
  return value as T;
}

export const keptLog = {
  save(state: State): void {
    try {
      sessionStorage.setItem("log", JSON.stringify({ base: state.base, log: state.log }));
    } catch {
      // Storage is full or off: a restarted server then starts anew.
    }
  },
  /** The actions that this window kept of what is explored; whether it kept others. */
  load(state: State): { log: Action[]; isOfAnother: boolean } {
    try {
      const kept = JSON.parse(sessionStorage.getItem("log") ?? "null");
      if (kept === null || kept.log.length === 0) return { log: [], isOfAnother: false };
      const isOfAnother = kept.base !== state.base;
      return { log: isOfAnother ? [] : kept.log, isOfAnother };
    } catch {
      return { log: [], isOfAnother: false };
    }
  },
};

/** Waits for a job; `report` sees it several times a second. */
export async function follow(job: JobInfo, report: (job: JobInfo) => void): Promise<JobInfo> {
  let now = job;
  while (now.state === "running") {
    report(now);
    await new Promise((resolve) => setTimeout(resolve, 250));
    now = await get<JobInfo>("job", { id: now.id });
  }
  report(now);
  return now;
}
