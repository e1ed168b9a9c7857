// SPDX-License-Identifier: Apache-2.0
// How boxes and edges are drawn.

export const BOX_VERTEX = `#version 300 es
layout(location=0) in vec2 corner;
layout(location=1) in vec4 box;
layout(location=2) in vec4 fill;
layout(location=3) in vec4 border;
layout(location=4) in float width;
uniform vec4 view;
uniform vec2 extent;
uniform float ratio;
out vec2 local;
out vec2 half_;
out vec4 vfill;
out vec4 vborder;
out float vwidth;
void main() {
  // What is marked can be seen from afar.
  half_ = max(box.zw * view.z * 0.5, vec2((width > 1.9 ? 1.8 : 0.6) * ratio));
  local = corner * (half_ + 1.0);
  vec2 pixel = (box.xy - view.xy) * view.z + local;
  gl_Position = vec4(pixel / extent * vec2(1.0, -1.0), 0.0, 1.0);
  vfill = fill; vborder = border;
  // Borders grow with the zoom, up to their width.
  vwidth = min(width, 0.15 * min(half_.x, half_.y) / ratio + (width > 1.9 ? 0.7 : 0.0));
}`;

export const BOX_FRAGMENT = `#version 300 es
precision highp float;
in vec2 local;
in vec2 half_;
in vec4 vfill;
in vec4 vborder;
in float vwidth;
uniform float ratio;
out vec4 color;
void main() {
  float radius = min(4.0 * ratio, min(half_.x, half_.y) * 0.5);
  vec2 q = abs(local) - half_ + radius;
  float distance = length(max(q, 0.0)) + min(max(q.x, q.y), 0.0) - radius;
  float inside = clamp(0.5 - distance, 0.0, 1.0);
  float edge = clamp(distance + vwidth * ratio + 0.5, 0.0, 1.0);
  vec4 mixed = mix(vfill, vborder, edge * step(0.01, vwidth));
  color = vec4(mixed.rgb, mixed.a * inside);
}`;

export const EDGE_VERTEX = `#version 300 es
layout(location=0) in vec2 point;
layout(location=1) in float strength;
uniform vec4 view;
uniform vec2 extent;
out float shade;
void main() {
  vec2 pixel = (point - view.xy) * view.z;
  gl_Position = vec4(pixel / extent * vec2(1.0, -1.0), 0.0, 1.0);
  shade = strength;
}`;

export const EDGE_FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 ink;
uniform vec4 strong;
in float shade;
out vec4 color;
void main() { color = shade > 1.5 ? strong : vec4(ink.rgb, ink.a * shade); }`;

/** Compiles two shaders into a program. */
export function program(gl: WebGL2RenderingContext, vertex: string, fragment: string): WebGLProgram {
  const result = gl.createProgram()!;
  for (const [type, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]] as const) {
    const shader = gl.createShader(type)!;
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(result, shader);
  }
  gl.linkProgram(result);
  if (!gl.getProgramParameter(result, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error(`WebGL: ${gl.getProgramInfoLog(result)}`);
  }
  return result;
}
