// SPDX-License-Identifier: Apache-2.0
// Draws a graph with WebGL2: boxes and edges in three draw calls, labels on a 2D canvas
// above. Vertices are repeated, not instanced: drawing by the processor, where there is
// no graphics card, takes much longer for many instances.
//
// A frame uploads nothing: panning and zooming change two uniforms. Nested computations
// are boxes in boxes, which graph libraries with round nodes do not draw.

import { type Color, cssColor, groupOf, heatOf, readColor } from "./colors";
import { shortened } from "./format";
import type { GraphData } from "./schema";
import { depthOf, drawTitles, type Title, titlesOf } from "./titles";
import { BOX_FRAGMENT, BOX_VERTEX, EDGE_FRAGMENT, EDGE_VERTEX, program } from "./shaders";

const HAS_BOX = 32;
const ROOT = 1;
const MAX_LABELS = 700;
const EDGE_STEPS = 8;
/** Segments of an edge, from the zoom at which they can be told apart on. */
const EDGE_DETAILS = [[1, 0], [4, 1.5], [EDGE_STEPS, 4]] as const;
/** Where the processor draws, a moving graph has no more of them, and no labels. */
const MAX_MOVING_EDGES = 3000;
const MAX_MOVING_LEAVES = 7000;
const MOVES_FOR_MS = 150;

export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Marks {
  selected: number;
  found: Set<number>;
  colorBy: string;
  /** The decision at an alternative: -1, 0, 1, ... */
  decisions: number[];
}

/** Whether the processor draws: smooth lines would then cost most of a frame. */
function isSoftware(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  const name = info ? String(gl!.getParameter(info.UNMASKED_RENDERER_WEBGL)) : "";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(name);
}

/** Whether the browser has WebGL2. */
export function hasWebGl(): boolean {
  return document.createElement("canvas").getContext("webgl2") !== null;
}

export class Renderer {
  readonly canvas = document.createElement("canvas");
  readonly labels = document.createElement("canvas");
  view: View = { x: 0, y: 0, scale: 1 };
  onView: () => void = () => {};
  /** Frames drawn so far, for those who measure. */
  frames = 0;
  private gl: WebGL2RenderingContext;
  private boxProgram: WebGLProgram;
  private edgeProgram: WebGLProgram;
  private graph: GraphData | null = null;
  private marks: Marks = { selected: -1, found: new Set(), colorBy: "kind", decisions: [] };
  private numGroups = 0;
  private numLeaves = 0;
  private numEdges = 0;
  private groups!: WebGLVertexArrayObject;
  private leaves!: WebGLVertexArrayObject;
  /** As many as EDGE_DETAILS; all of the same points. */
  private edges: WebGLVertexArrayObject[] = [];
  private buffers: Record<string, WebGLBuffer> = {};
  private leafNodes: number[] = [];
  private isWaiting = false;
  private isSoftware = isSoftware();
  /** The timer that ends a movement; 0 for none. */
  private movement = 0;
  private order: number[] = [];
  private titles: Title[] = [];
  private colors: { edge: Color; accent: Color; ink: string; soft: string } | null = null;
  private places = new Map<string, WebGLUniformLocation | null>();

  constructor() {
    const gl = this.canvas.getContext("webgl2", { antialias: !this.isSoftware, alpha: true, premultipliedAlpha: false });
    if (!gl) throw new Error("WebGL2 is not available");
    this.gl = gl;
    this.boxProgram = program(gl, BOX_VERTEX, BOX_FRAGMENT);
    this.edgeProgram = program(gl, EDGE_VERTEX, EDGE_FRAGMENT);
    this.canvas.className = "boxes";
    this.labels.className = "labels";
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => {
      this.boxProgram = program(gl, BOX_VERTEX, BOX_FRAGMENT);
      this.edgeProgram = program(gl, EDGE_VERTEX, EDGE_FRAGMENT);
      this.places.clear();
      if (this.graph) this.show(this.graph, this.marks);
    });
  }

  show(graph: GraphData, marks: Marks): void {
    this.graph = graph;
    this.marks = marks;
    const gl = this.gl;
    this.order = this.groupOrder(graph);
    this.titles = titlesOf(graph, this.order);
    const leaves: number[] = [];
    graph.flags.forEach((flags, node) => {
      if (!(flags & HAS_BOX)) leaves.push(node);
    });
    this.leafNodes = leaves.map((_, at) => leaves[spread(at, leaves.length)]);
    this.numGroups = graph.computations.length + this.order.length;
    this.numLeaves = this.leafNodes.length;
    this.numEdges = graph.edge_sources.length;
    this.release();
    this.groups = this.boxArray("groups", this.numGroups);
    this.leaves = this.boxArray("leaves", this.numLeaves);
    this.edges = this.edgeArrays(this.numEdges);
    gl.bindVertexArray(null);
    this.restyle(marks);
  }

  /** Frees what the graph before this one used. */
  private release(): void {
    for (const buffer of Object.values(this.buffers)) this.gl.deleteBuffer(buffer);
    for (const array of [this.groups, this.leaves, ...this.edges]) if (array) this.gl.deleteVertexArray(array);
    this.buffers = {};
  }

  /** Colours again: after a decision, a selection, a search or another theme. */
  restyle(marks: Marks): void {
    this.colors = null;
    this.marks = marks;
    if (!this.graph) return;
    this.uploadBoxes(this.graph);
    this.uploadEdges(this.graph);
    this.draw();
  }

  fit(): void {
    const graph = this.graph;
    if (!graph) return;
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const scale = Math.min(w / (graph.width + 6), h / (graph.height + 6));
    this.view = { x: graph.width / 2, y: graph.height / 2, scale: Math.min(Math.max(scale, 1e-3), 14) };
    this.draw();
  }

  /** Centers a node; zooms in as far as its label can be read. */
  center(node: number): void {
    const graph = this.graph!;
    const wide = (this.canvas.clientWidth * 0.8) / graph.w[node];
    const high = (this.canvas.clientHeight * 0.8) / graph.h[node];
    this.view = {
      x: graph.x[node],
      y: graph.y[node],
      scale: Math.min(Math.max(this.view.scale, 8), Math.max(Math.min(wide, high), 1)),
    };
    this.draw();
  }

  pan(dx: number, dy: number): void {
    this.view.x -= dx / this.view.scale;
    this.view.y -= dy / this.view.scale;
    this.move();
  }

  zoom(factor: number, px: number, py: number): void {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const scale = Math.min(Math.max(this.view.scale * factor, 1e-3), 60);
    const dx = px - w / 2;
    const dy = py - h / 2;
    this.view.x += dx / this.view.scale - dx / scale;
    this.view.y += dy / this.view.scale - dy / scale;
    this.view.scale = scale;
    this.move();
  }

  /** Draws, and in full once nothing has moved for a while. */
  private move(): void {
    if (this.isSoftware && this.numEdges + this.numLeaves > MAX_MOVING_LEAVES) {
      clearTimeout(this.movement);
      this.movement = window.setTimeout(() => {
        this.movement = 0;
        this.draw();
      }, MOVES_FOR_MS);
    }
    this.draw();
  }

  /** How many of them this frame has. */
  private drawn(number: number, most: number): number {
    return this.movement ? Math.min(number, most) : number;
  }

  /** The smallest node at a pixel; -1 for none. */
  pick(px: number, py: number): number {
    const graph = this.graph;
    if (!graph) return -1;
    const x = (px - this.canvas.clientWidth / 2) / this.view.scale + this.view.x;
    const y = (py - this.canvas.clientHeight / 2) / this.view.scale + this.view.y;
    let best = -1;
    let least = Number.POSITIVE_INFINITY;
    for (let node = 0; node < graph.x.length; node++) {
      if (Math.abs(x - graph.x[node]) * 2 > graph.w[node]) continue;
      if (Math.abs(y - graph.y[node]) * 2 > graph.h[node]) continue;
      const size = graph.w[node] * graph.h[node];
      if (size < least) {
        least = size;
        best = node;
      }
    }
    return best;
  }

  draw(): void {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.paint();
    });
  }

  /** Draws now. */
  paint(): void {
    const graph = this.graph;
    const ratio = devicePixelRatio || 1;
    const { clientWidth: w, clientHeight: h } = this.canvas;
    if (!graph || w === 0 || h === 0) return;
    for (const canvas of [this.canvas, this.labels]) {
      if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
        canvas.width = Math.round(w * ratio);
        canvas.height = Math.round(h * ratio);
      }
    }
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    if (this.colors === null) {
      const of = (name: string) => readColor(name);
      this.colors = { edge: of("--edge"), accent: of("--accent"), ink: cssColor("--ink"), soft: cssColor("--soft") };
    }
    this.drawBoxes(this.groups, this.numGroups, ratio);
    this.drawEdges(ratio);
    this.drawBoxes(this.leaves, this.drawn(this.numLeaves, MAX_MOVING_LEAVES), ratio);
    this.labels.style.visibility = this.movement ? "hidden" : "";
    if (!this.movement) this.drawLabels(graph, ratio, w, h);
    this.frames++;
    this.onView();
  }

  private place(which: WebGLProgram, name: string): WebGLUniformLocation | null {
    const key = `${which === this.boxProgram} ${name}`;
    let found = this.places.get(key);
    if (found === undefined) this.places.set(key, (found = this.gl.getUniformLocation(which, name)));
    return found;
  }

  private uniforms(which: WebGLProgram, ratio: number): void {
    const gl = this.gl;
    gl.useProgram(which);
    const { x, y, scale } = this.view;
    gl.uniform4f(this.place(which, "view"), x, y, scale * ratio, 0);
    gl.uniform2f(this.place(which, "extent"), this.canvas.width / 2, this.canvas.height / 2);
  }

  private drawBoxes(array: WebGLVertexArrayObject, number: number, ratio: number): void {
    const gl = this.gl;
    this.uniforms(this.boxProgram, ratio);
    gl.uniform1f(this.place(this.boxProgram, "ratio"), ratio);
    gl.bindVertexArray(array);
    gl.drawElements(gl.TRIANGLES, 6 * number, gl.UNSIGNED_INT, 0);
  }

  private drawEdges(ratio: number): void {
    const gl = this.gl;
    this.uniforms(this.edgeProgram, ratio);
    const { edge: ink, accent: strong } = this.colors!;
    const alpha = Math.min(0.75, 0.07 + this.view.scale * 0.1);
    gl.uniform4f(this.place(this.edgeProgram, "ink"), ink[0] / 255, ink[1] / 255, ink[2] / 255, alpha);
    gl.uniform4f(this.place(this.edgeProgram, "strong"), strong[0] / 255, strong[1] / 255, strong[2] / 255, 1);
    const detail = EDGE_DETAILS.filter(([, scale]) => this.view.scale >= scale).length - 1;
    gl.bindVertexArray(this.edges[detail]);
    const number = this.drawn(this.numEdges, MAX_MOVING_EDGES);
    gl.drawElements(gl.LINES, 2 * EDGE_DETAILS[detail][0] * number, gl.UNSIGNED_INT, 0);
  }

  private drawLabels(graph: GraphData, ratio: number, w: number, h: number): void {
    const pen = this.labels.getContext("2d")!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    const { x, y, scale } = this.view;
    const size = Math.min(13, scale * 1.12);
    pen.textBaseline = "middle";
    const { ink, soft } = this.colors!;
    const toX = (value: number) => (value - x) * scale + w / 2;
    const toY = (value: number) => (value - y) * scale + h / 2;
    if (size >= 6) {
      pen.font = `${size}px ui-monospace, monospace`;
      const widest = 1.75 * size;
      let left = MAX_LABELS;
      for (const node of this.leafNodes) {
        const px = toX(graph.x[node]);
        const py = toY(graph.y[node]);
        const pw = graph.w[node] * scale;
        if (px + pw / 2 < 0 || px - pw / 2 > w || py < -20 || py > h + 20) continue;
        if (left-- === 0) break;
        const letters = Math.max(3, Math.floor((pw - 8) / (size * 0.605)));
        const opcode = graph.opcodes[graph.opcode[node]];
        const mark = graph.alternative[node] >= 0 ? "\u25c6 " : "";
        pen.fillStyle = ink;
        const hasTwo = graph.h[node] * scale > widest * 1.15;
        pen.fillText(shortened(mark + opcode, letters), px - pw / 2 + 4, hasTwo ? py - size * 0.52 : py);
        if (hasTwo) {
          pen.fillStyle = soft;
          pen.fillText(shortened(graph.names[node], letters), px - pw / 2 + 4, py + size * 0.6);
        }
      }
    }
    pen.font = "11.5px ui-monospace, monospace";
    pen.fillStyle = soft;
    drawTitles(pen, this.titles, this.view, w, h);
  }

  /** Nodes with computations inside, outermost first. */
  private groupOrder(graph: GraphData): number[] {
    const found: [number, number][] = [];
    graph.flags.forEach((flags, node) => {
      if (flags & HAS_BOX) found.push([depthOf(graph, graph.computation[node]), node]);
    });
    return found.sort((a, b) => a[0] - b[0]).map(([, node]) => node);
  }

  private boxArray(name: string, number: number): WebGLVertexArrayObject {
    const gl = this.gl;
    const array = gl.createVertexArray()!;
    gl.bindVertexArray(array);
    for (const [part, location, size] of BOX_PARTS) {
      const isColor = part === "fill" || part === "border";
      const buffer = (this.buffers[`${name}.${part}`] = gl.createBuffer()!);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, isColor ? gl.UNSIGNED_BYTE : gl.FLOAT, isColor, 0, 0);
    }
    const indices = new Uint32Array(6 * number);
    for (let box = 0; box < number; box++) {
      const first = 4 * box;
      indices.set([first, first + 1, first + 2, first + 1, first + 3, first + 2], 6 * box);
    }
    this.uploadIndices(indices);
    return array;
  }

  private edgeArrays(number: number): WebGLVertexArrayObject[] {
    const gl = this.gl;
    for (const part of ["points", "strength"]) this.buffers[part] = gl.createBuffer()!;
    return EDGE_DETAILS.map(([steps]) => {
      const array = gl.createVertexArray()!;
      gl.bindVertexArray(array);
      for (const [part, location, size] of [["points", 0, 2], ["strength", 1, 1]] as const) {
        gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[part]);
        gl.enableVertexAttribArray(location);
        gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
      }
      const indices = new Uint32Array(2 * steps * number);
      const stride = EDGE_STEPS / steps;
      for (let edge = 0, at = 0; edge < number; edge++) {
        for (let step = 0; step < steps; step++) {
          const first = edge * (EDGE_STEPS + 1) + step * stride;
          indices[at++] = first;
          indices[at++] = first + stride;
        }
      }
      this.uploadIndices(indices);
      return array;
    });
  }

  private uploadIndices(indices: Uint32Array<ArrayBuffer>): void {
    const gl = this.gl;
    const buffer = (this.buffers[`indices ${Object.keys(this.buffers).length}`] = gl.createBuffer()!);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, indices, gl.STATIC_DRAW);
  }

  private upload(name: string, data: Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>): void {
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.DYNAMIC_DRAW);
  }

  private uploadBoxes(graph: GraphData): void {
    const colors = palette();
    const heat = heatOf(graph, this.marks.colorBy);
    const groups = new BoxRows(this.numGroups);
    const nodeRow = (rows: BoxRows, node: number, fill: Color) => {
      let [border, width] = this.borderOf(graph, node, colors);
      if (heat && heat[node] > 0.35 && width < 3) [border, width] = [colors.heat, 2];
      rows.add(graph.x[node], graph.y[node], graph.w[node], graph.h[node], fill, border, width);
    };
    const byDepth: [number, () => void][] = graph.computations.map((box, number) => [
      2 * depthOf(graph, number),
      () => {
        const isFramed = box.caller < 0 || (box.role !== "fused" && box.role !== "called");
        groups.add(box.x, box.y, box.w, box.h, colors.computation, colors.frame, isFramed ? 1 : 0);
      },
    ]);
    for (const node of this.order) {
      const depth = 2 * depthOf(graph, graph.computation[node]) + 1;
      byDepth.push([depth, () => nodeRow(groups, node, heat ? blend(colors.group, colors.heat, heat[node]) : colors.group)]);
    }
    byDepth.sort((a, b) => a[0] - b[0]);
    for (const [, add] of byDepth) add();
    const leaves = new BoxRows(this.numLeaves);
    const kinds = graph.opcodes.map((opcode) => colors.kinds[groupOf(opcode)]);
    for (const node of this.leafNodes) {
      nodeRow(leaves, node, heat ? blend(colors.cold, colors.heat, heat[node]) : kinds[graph.opcode[node]]);
    }
    for (const [name, rows] of [["groups", groups], ["leaves", leaves]] as const) {
      for (const [part] of BOX_PARTS) this.upload(`${name}.${part}`, rows[part]);
    }
  }

  private borderOf(graph: GraphData, node: number, colors: ReturnType<typeof palette>): [Color, number] {
    if (node === this.marks.selected) return [colors.accent, 3.5];
    if (this.marks.found.has(node)) return [colors.found, 3];
    const alternative = graph.alternative[node];
    if (alternative >= 0) {
      const decision = this.marks.decisions[alternative] ?? -1;
      if (decision > 0) return [colors.accepted, 3];
      return decision === 0 ? [colors.rejected, 3] : [colors.alternative, 2];
    }
    return graph.flags[node] & ROOT ? [colors.root, 1.6] : [colors.line, 0.8];
  }

  private uploadEdges(graph: GraphData): void {
    const number = graph.edge_sources.length;
    const points = new Float32Array(2 * (EDGE_STEPS + 1) * number);
    const strength = new Float32Array((EDGE_STEPS + 1) * number);
    const isControl = new Set(graph.edge_controls);
    const chosen = this.marks.selected;
    for (let each = 0, at = 0; each < number; each++) {
      const edge = spread(each, number);
      const a = graph.edge_sources[edge];
      const b = graph.edge_targets[edge];
      const x0 = graph.x[a];
      const y0 = graph.y[a] + graph.h[a] / 2;
      const x1 = graph.x[b];
      const y1 = graph.y[b] - graph.h[b] / 2;
      // Long edges are fainter: many of them cross what lies between.
      const length = Math.abs(y1 - y0) + Math.abs(x1 - x0);
      let shade = 1 / (1 + Math.max(0, length - 30) / 120);
      if (isControl.has(edge)) shade = Math.min(shade, 0.45);
      if (a === chosen || b === chosen) shade = 2;
      for (let step = 0; step <= EDGE_STEPS; step++, at++) {
        const t = step / EDGE_STEPS;
        points[2 * at] = x0 + (x1 - x0) * t * t * (3 - 2 * t);
        points[2 * at + 1] = y0 + (y1 - y0) * t;
        strength[at] = shade;
      }
    }
    this.upload("points", points);
    this.upload("strength", strength);
  }
}

/** An order of `number` things whose beginning is from everywhere. */
function spread(at: number, number: number): number {
  return (at * (number % 7919 ? 7919 : 7907)) % number;
}

/** What a box has at each of its corners: name, location and size. */
const BOX_PARTS = [["corner", 0, 2], ["box", 1, 4], ["fill", 2, 4], ["border", 3, 4], ["width", 4, 1]] as const;
const CORNERS = [[-1, -1], [1, -1], [-1, 1], [1, 1]];

class BoxRows {
  readonly corner: Float32Array<ArrayBuffer>;
  readonly box: Float32Array<ArrayBuffer>;
  readonly fill: Uint8Array<ArrayBuffer>;
  readonly border: Uint8Array<ArrayBuffer>;
  readonly width: Float32Array<ArrayBuffer>;
  private at = 0;

  constructor(number: number) {
    this.corner = new Float32Array(8 * number);
    this.box = new Float32Array(16 * number);
    this.fill = new Uint8Array(16 * number);
    this.border = new Uint8Array(16 * number);
    this.width = new Float32Array(4 * number);
  }

  add(x: number, y: number, w: number, h: number, fill: Color, border: Color, width: number): void {
    for (const corner of CORNERS) {
      this.corner.set(corner, 2 * this.at);
      this.box.set([x, y, w, h], 4 * this.at);
      this.fill.set(fill, 4 * this.at);
      this.border.set(border, 4 * this.at);
      this.width[this.at++] = width;
    }
  }
}

function palette() {
  const kinds: Record<string, Color> = {};
  for (const name of ["product", "reduction", "movement", "input", "control", "elementwise"]) {
    kinds[name] = readColor(`--kind-${name}`);
  }
  return {
    kinds,
    computation: readColor("--computation"),
    group: readColor("--group"),
    frame: readColor("--frame"),
    line: readColor("--line"),
    root: readColor("--ink"),
    cold: readColor("--cold"),
    heat: readColor("--heat"),
    accent: readColor("--accent"),
    found: readColor("--found"),
    alternative: readColor("--alternative"),
    accepted: readColor("--accepted"),
    rejected: readColor("--rejected"),
  };
}

function blend(a: Color, b: Color, t: number): Color {
  return [0, 1, 2, 3].map((i) => Math.round(a[i] + (b[i] - a[i]) * t)) as Color;
}
