// SPDX-License-Identifier: Apache-2.0
// What the views share: the state, the alternatives, the route, and who listens.

import type { AlternativeRow, CompareResult, EstimateResult, Finished, JobInfo, MeasureResult, Results, State, Timeline } from "./schema";
import { follow, get, hasAnswer, isReadOnly, keptLog, LostError, post, RequestError, showStop, shownStop } from "./source";

export type Tab = "graph" | "rewrites" | "pipeline" | "results";
export const TABS: Tab[] = ["graph", "rewrites", "pipeline", "results"];

interface Route {
  tab: Tab;
  params: Record<string, string>;
}

type Listener = () => void;

function hashOf(tab: Tab, params: Record<string, string>): string {
  const stop = shownStop(); // of a single file
  const text = Object.entries(stop ? { ...params, stop: String(stop) } : params)
    .filter(([, value]) => value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
    .join("&");
  return `#/${tab}${text ? `?${text}` : ""}`;
}

class Store {
  state: State | null = null;
  alternatives: AlternativeRow[] = [];
  route: Route = { tab: "graph", params: {} };
  message = "";
  isLost = false;
  /** False where there are results alone. */
  hasModule = true;
  isBusy = false;
  /** Seconds over XLA's default, by "alternative:choice". */
  timed = new Map<string, number>();
  jobs = new Map<string, JobInfo>();
  estimate: EstimateResult | null = null;
  measure: MeasureResult | null = null;
  compare: CompareResult | null = null;
  timeline: Timeline | null = null;
  private loads = 0;
  /** Counts the changes of the module, for what depends on it. */
  version = 0;
  /** Where each view was left. */
  private left: Partial<Record<Tab, Record<string, string>>> = {};
  private listeners = new Set<Listener>();
  /** Ends when the latest action is done. */
  private turn: Promise<boolean> = Promise.resolve(true);

  listen(listener: Listener): void {
    this.listeners.add(listener);
  }

  changed(): void {
    for (const each of this.listeners) each();
  }

  say(message: string): void {
    this.message = message;
    this.changed();
  }

  /** Does something that may fail, and says why. */
  async attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof LostError) this.lose();
      else if (error instanceof RequestError) {
        // A restarted server gets the decisions back, as when it was lost.
        if (error.kind === "StaleError") await this.attempt(() => this.load());
        this.say([error.message, this.message].filter(Boolean).join(" "));
      } else throw error;
      return undefined;
    }
  }

  async start(): Promise<void> {
    const isFirst = location.hash === "";
    this.readRoute();
    addEventListener("hashchange", () => {
      this.readRoute();
      this.changed();
    });
    await this.attempt(() => this.load());
    // Who opens results wants to see them.
    if (isFirst && this.hasModule && !this.isLost) {
      const results = await this.attempt(() => get<Results>("results"));
      if (results && results.kind !== "none") this.go("results");
    }
    this.changed();
  }

  /** Shows another decision point of a single file. */
  async goToStop(number: number): Promise<void> {
    if (!showStop(number)) return;
    await this.attempt(async () => this.take(await get<State>("state"), true));
    this.setParams({ node: "", which: "" });
  }

  /** What the results depend on: the server, and what is open there. */
  get resultsKey(): string {
    return `${this.loads} ${this.state?.session ?? ""}`;
  }

  private async load(): Promise<void> {
    this.loads++;
    let state = hasAnswer("state") ? await get<State | null>("state") : null;
    if (state === null) {
      // Results without a module.
      this.hasModule = false;
      if (this.route.tab !== "results") this.go("results");
      return;
    }
    const { log, isOfAnother } = keptLog.load(state);
    if (!isReadOnly && isOfAnother && state.is_safe_to_restore) {
      this.message = "This server explores something else than the one before: the decisions of this window were not restored.";
    }
    if (!isReadOnly && state.is_safe_to_restore && log.length > 0) {
      try {
        state = await post<State>("restore", { log });
        this.message = "The server was restarted: your decisions are restored.";
      } catch (error) {
        if (error instanceof LostError) throw error;
        this.message = `The decisions could not be restored: ${(error as Error).message}`;
      }
    }
    await this.take(state, true);
    if (!isReadOnly) this.takeResults(await get<Finished>("finished"));
    if (isReadOnly) this.timeline = await get<Timeline>("timeline").catch(() => null);
  }

  /** Takes a new state; the alternatives are loaded again if they are others. */
  async take(state: State, isNew = false): Promise<void> {
    const old = this.state;
    const isOther =
      isNew || old === null || old.session !== state.session ||
      old.module.fingerprint !== state.module.fingerprint ||
      JSON.stringify(old.point) !== JSON.stringify(state.point) ||
      old.steps.length !== state.steps.length;
    this.state = state;
    this.hasModule = true;
    if (!isReadOnly) keptLog.save(state);
    if (old?.session !== state.session) {
      this.timeline = null;
      this.compare = null;
      this.jobs.clear();
    }
    if (isOther) {
      this.alternatives = await get<AlternativeRow[]>("alternatives");
      this.timed.clear();
      this.version++;
      if (old !== null) this.deselect();
    }
    if (old !== null && (isOther || JSON.stringify(old.decisions) !== JSON.stringify(state.decisions))) {
      this.estimate = null;
      this.measure = null;
      if (isOther || this.compare?.first === "decided" || this.compare?.second === "decided") this.compare = null;
    }
    document.title = `${state.module.name} \u2013 hloenv explorer`;
    this.changed();
  }

  /** An action that gives a new state, after those before it. */
  act(path: string, body: object = {}): Promise<boolean> {
    const { version } = this;
    // An action before it may have changed what this one means.
    const done = this.turn.then(() => {
      if (version === this.version) return this.actNow(path, body);
      this.say("The rewrites have changed since: the last click or key did nothing. Repeat it if it still applies.");
      return false;
    });
    this.turn = done.catch(() => false);
    return done;
  }

  private async actNow(path: string, body: object): Promise<boolean> {
    this.isBusy = true;
    this.message = "";
    this.changed();
    const revision = this.state?.revision ?? "";
    const { accepted = 0, rejected = 0 } = this.state?.totals ?? {};
    const state = await this.attempt(() => post<State>(path, { revision, ...body }));
    if (state) await this.attempt(() => this.take(state, path.startsWith("open")));
    if (state && path === "point" && accepted + rejected > 0) {
      this.message = `${accepted + rejected} decisions at the stop before were not applied: Undo brings them back.`;
    }
    this.isBusy = false;
    this.changed();
    return state !== undefined;
  }

  undo(): Promise<boolean> {
    return this.state?.totals.can_undo ? this.act("undo") : Promise.resolve(false);
  }

  decide(changes: [number, number][]): Promise<boolean> {
    if (changes.length === 0) {
      this.say("No rewrite matches.");
      return Promise.resolve(false);
    }
    return this.act("decide", { changes });
  }

  /** What the result of a job belongs to. */
  private subject(kind: string): string {
    if (kind === "timeline") return this.state?.session ?? "";
    return JSON.stringify([this.version, kind === "rank" ? null : this.state?.decisions]);
  }

  /** Starts a job and takes its result, unless it belongs to a session or decisions that are no longer here. */
  async run(kind: string, body: object = {}): Promise<JobInfo | undefined> {
    this.message = "";
    const subject = this.subject(kind);
    const job = await this.attempt(() => post<JobInfo>("start", { kind, revision: this.state?.revision ?? "", ...body }));
    if (!job) return undefined;
    const done = await this.attempt(() =>
      follow(job, (now) => {
        this.jobs.set(kind, now);
        this.changed();
      }),
    );
    if (!done) return undefined;
    if (subject !== this.subject(kind)) {
      this.say(`The ${kind} job was for other decisions: its result is dropped. Start it again.`);
      return undefined;
    }
    this.takeResults(done);
    const error =
      done.message || done.estimate?.error || done.measure?.error || done.compare?.error || done.rank?.error;
    if (error && done.state !== "cancelled") this.message = error;
    this.changed();
    return done;
  }

  private takeResults(found: Finished): void {
    if (found.estimate) this.estimate = found.estimate;
    if (found.measure) this.measure = found.measure;
    if (found.compare) this.compare = found.compare;
    if (found.timeline) this.timeline = found.timeline;
    for (const [index, choice, value] of found.rank?.timed ?? []) {
      this.timed.set(`${index}:${choice}`, value);
    }
  }

  async cancel(job: JobInfo): Promise<void> {
    await this.attempt(() => post("cancel", { id: job.id }));
  }

  /** The address of a view as it was left. */
  addressOf(tab: Tab): string {
    return hashOf(tab, this.left[tab] ?? {});
  }

  go(tab: Tab, params: Record<string, string> = {}): void {
    const hash = hashOf(tab, params);
    if (hash !== location.hash) location.hash = hash;
  }

  /** Changes parameters of the route; no new entry of the history. */
  setParams(changes: Record<string, string>): void {
    history.replaceState(null, "", hashOf(this.route.tab, { ...this.route.params, ...changes }));
    this.readRoute();
    this.changed();
  }

  private readRoute(): void {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const params: Record<string, string> = {};
    for (const part of query.split("&").filter(Boolean)) {
      const [key, value = ""] = part.split("=");
      try {
        params[key] = decodeURIComponent(value);
      } catch {
        params[key] = value;
      }
    }
    const tab = TABS.find((each) => each === path) ?? "rewrites";
    const { stop = "0" } = params;
    delete params.stop;
    if (Number(stop) !== shownStop()) {
      // Before the first state there is nothing to replace.
      if (this.state === null) showStop(Number(stop));
      else void this.goToStop(Number(stop));
    }
    this.route = { tab, params };
    this.left[tab] = params;
  }

  /** Deselects a rewrite whose number means another one now. */
  private deselect(): void {
    const { a: _a, c: _c, ...left } = this.left.rewrites ?? {};
    this.left.rewrites = left;
    if (this.route.tab === "rewrites") this.setParams({ a: "", c: "" });
  }

  /** Waits for the server to come back. */
  private lose(): void {
    if (this.isLost) return;
    this.isLost = true;
    this.changed();
    const again = async () => {
      try {
        await this.load();
        this.isLost = false;
        this.jobs.clear();
        this.changed();
      } catch {
        setTimeout(again, 1500);
      }
    };
    setTimeout(again, 1000);
  }
}

export const store = new Store();
