// SPDX-License-Identifier: Apache-2.0
// typescript.js: TypeScript to JavaScript with amaro, the transpiler of the Node project itself (swc compiled to WebAssembly).
// It replaces types by spaces, so every position stays true. Enums, namespaces and parameter properties are more
// than types: a cell with one of these is printed anew.
'use strict';

let amaro = null;

// Loads it and lets it compile itself: with the first text it takes much longer than with the second.
function load() {
  if (amaro) return;
  amaro = require('amaro');
  amaro.transformSync('let x: number = 1', { mode: 'strip-only' });
}

class TranspileError extends Error {
  constructor(cause) {
    super(cause.message || String(cause));
    this.name = 'TranspileError';
    this.line = cause.startLine || 0;
    this.column = (cause.startColumn || 0) + 1;
  }
}

function transpile(source) {
  load();
  try {
    return amaro.transformSync(source, { mode: 'strip-only' }).code;
  } catch (e) {
    if (e.code !== 'UnsupportedSyntax') throw new TranspileError(e);
  }
  try {
    return amaro.transformSync(source, { mode: 'transform' }).code;
  } catch (e) {
    throw new TranspileError(e);
  }
}

module.exports = { load, transpile, TranspileError };
