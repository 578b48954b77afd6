// SPDX-License-Identifier: Apache-2.0
// values.js: the value of a cell and the errors of a cell, as the agent's events show them.
'use strict';

const path = require('path');
const util = require('util');

const TEXT_MAX = 1 << 20;
const JSON_MAX = 8 << 20;
const DATA_MAX = 256 << 10;
const MESSAGE_MAX = 64 << 10;
const LINES_MAX = 400;
const LINE_MAX = 4096;
const CAUSES_MAX = 5;
const DEPTH_MAX = 40;
const VALUES_MAX = 200000;
const { stringify, parse } = JSON;
const { inspect, types } = util;
const OWN = __dirname + path.sep;

function cut(text, limit = TEXT_MAX) {
  return text.length <= limit ? text : `${text.slice(0, limit)}\n[cut: ${text.length} characters, ${limit} shown]`;
}

function show(value) {
  try {
    return cut(inspect(value, { maxArrayLength: 1000, maxStringLength: TEXT_MAX }));
  } catch (e) {
    return `[not printable: ${e && e.message}]`;
  }
}

// Nothing but what the agent's JSON reader takes: bounded depth and number of values.
function fits(value) {
  const pending = [[value, 0]];
  for (let count = 0; pending.length; count++) {
    const [v, depth] = pending.pop();
    if (count > VALUES_MAX || depth > DEPTH_MAX) return false;
    if (v && typeof v === 'object') for (const key in v) pending.push([v[key], depth + 1]);
  }
  return true;
}

// The value as JSON would carry it, or undefined when JSON says nothing about it.
function plain(value) {
  const opaque =
    types.isMap(value) || types.isSet(value) || types.isRegExp(value) || types.isNativeError(value) || types.isPromise(value) ||
    types.isWeakMap(value) || types.isWeakSet(value) || types.isProxy(value) || types.isAnyArrayBuffer(value) ||
    types.isModuleNamespaceObject(value) || types.isTypedArray(value);
  if (opaque) return undefined;
  try {
    const text = stringify(value);
    if (text === undefined || text.length > JSON_MAX) return undefined;
    const copy = parse(text);
    return fits(copy) ? copy : undefined;
  } catch {
    return undefined; // cyclic, a BigInt inside, a toJSON that throws
  }
}

// The result event of a value, or null when there is nothing to show.
function result(value) {
  if (value === undefined) return null;
  if (value !== null && typeof value === 'object') {
    const json = plain(value);
    if (json !== undefined) {
      const event = { json, metadata: {} };
      const text = show(value);
      if (text.length <= DATA_MAX) event.data = { 'text/plain': text };
      if (event.data && stringify(json).length <= DATA_MAX) event.data['application/json'] = json;
      return event;
    }
  }
  return { text: show(value), metadata: {} };
}

// The frames of a stack from the user's code on. What called the cell is ours and left out, and so is the line behind
// the cell's last, which is where an awaiting cell is called.
function frames(stack, cell) {
  const behind = cell ? `at ${cell.file}:${cell.lines + 1}:` : OWN;
  const foreign = (line) => line.includes(OWN) || line.includes(behind) || /^\s+at .*\(?node:(vm|internal)/.test(line);
  const lines = stack.split('\n').filter((line) => !foreign(line));
  return lines.length > LINES_MAX ? [...lines.slice(0, LINES_MAX), `[${lines.length - LINES_MAX} lines left out]`] : lines;
}

// The error event of anything thrown; cell: {file, lines} of the running cell, if any.
function failure(error, cell) {
  try {
    if (!types.isNativeError(error)) {
      return { ename: 'Error', evalue: cut(typeof error === 'string' ? error : show(error), MESSAGE_MAX), traceback: [] };
    }
    const stack = typeof error.stack === 'string' && error.stack ? frames(error.stack, cell) : [];
    for (let cause = error.cause, n = 0; types.isNativeError(cause) && n < CAUSES_MAX; cause = cause.cause, n++) {
      if (typeof cause.stack === 'string') stack.push(...`[cause]: ${frames(cause.stack, cell).join('\n')}`.split('\n'));
    }
    const traceback = stack.map((line) => cut(line, LINE_MAX));
    return { ename: String(error.name), evalue: cut(String(error.message), MESSAGE_MAX), traceback };
  } catch {
    return { ename: 'Error', evalue: '[an error that cannot be printed]', traceback: [] };
  }
}

// A SyntaxError with its position, as both parsers give it.
function syntaxFailure(error, source, file) {
  const line = error.loc ? error.loc.line : error.line || 0;
  const column = error.loc ? error.loc.column + 1 : error.column || 0;
  const message = String(error.message).replace(/ \(\d+:\d+\)$/, '') + (line ? ` (${line}:${column})` : '');
  const traceback = [];
  if (line) {
    const text = cut(source.split('\n')[line - 1] || '', LINE_MAX);
    traceback.push(`${file}:${line}:${column}`, text, `${' '.repeat(Math.min(column - 1, LINE_MAX))}^`);
  }
  traceback.push('', `${error.name}: ${message}`);
  return { ename: error.name, evalue: message, traceback };
}

module.exports = { result, failure, syntaxFailure };
