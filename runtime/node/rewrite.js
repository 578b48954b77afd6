// SPDX-License-Identifier: Apache-2.0
// rewrite.js: turns a cell into scripts whose declarations outlive it.
//
// Theory of operation
// A cell runs as an ordinary script in the global scope, so that `var` and `function` are kept by the language itself. `let`,
// `const` and `class` at the top level become `var`: kept as well, and free to be declared again. The value of the script
// is the value of its last expression.
// A cell with a top-level `await` or a static import cannot be a script. It becomes two: the function declarations, alone
// at their places, and the rest as the body of an async arrow function, with declarations turned into assignments to global
// variables, and the last expression returned. All edits keep the line of every token, most of them the column.
'use strict';

const acorn = require('acorn');

const OPTIONS = {
  ecmaVersion: 'latest',
  sourceType: 'script',
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowHashBang: true,
};
const PREFIX = '(async () => {';

// A list of replacements of ranges of the source, applied in one go.
class Edits {
  #source;
  #list = [];

  constructor(source) {
    this.#source = source;
  }

  replace(start, end, text) {
    this.#list.push({ start, end, text, order: this.#list.length });
  }

  insert(at, text) {
    this.replace(at, at, text);
  }

  // Spaces instead of the characters, newlines stay.
  blank(start, end) {
    this.replace(start, end, this.#source.slice(start, end).replace(/[^\n\r\u2028\u2029]/g, ' '));
  }

  apply() {
    let out = '';
    let at = 0;
    for (const e of this.#list.sort((a, b) => a.start - b.start || a.order - b.order)) {
      out += this.#source.slice(at, e.start) + e.text;
      at = Math.max(at, e.end);
    }
    return out + this.#source.slice(at);
  }
}

// Is there an await which belongs to the cell itself? Goes through the tree with a list instead of recursion.
function awaits(program) {
  const pending = [program];
  while (pending.length) {
    const node = pending.pop();
    if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) return true;
    if (node.type === 'ImportDeclaration') return true;
    if (/Function/.test(node.type) || node.type === 'StaticBlock' || node.type === 'PropertyDefinition') continue;
    for (const key of Object.keys(node)) {
      const value = node[key];
      if (Array.isArray(value)) {
        for (const item of value) if (item && typeof item.type === 'string') pending.push(item);
      } else if (value && typeof value.type === 'string') {
        pending.push(value);
      }
    }
  }
  return false;
}

function patternNames(pattern, names) {
  const pending = [pattern];
  while (pending.length) {
    const p = pending.pop();
    if (!p) continue;
    if (p.type === 'Identifier') names.push(p.name);
    else if (p.type === 'ObjectPattern') pending.push(...p.properties.map((q) => q.value || q.argument));
    else if (p.type === 'ArrayPattern') pending.push(...p.elements);
    else if (p.type === 'AssignmentPattern') pending.push(p.left);
    else if (p.type === 'RestElement') pending.push(p.argument);
  }
}

// `export` in front of a declaration or an expression means nothing here. Returns the statements without it.
function withoutExports(program, edits) {
  const body = [];
  for (const node of program.body) {
    if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      edits.blank(node.start, node.declaration.start);
      body.push(node.declaration);
    } else if (node.type === 'ExportDefaultDeclaration') {
      const named = node.declaration.id;
      edits.blank(node.start, node.declaration.start);
      if (named) body.push(node.declaration);
      else {
        edits.insert(node.declaration.start, '(');
        edits.insert(node.declaration.end, ')');
        body.push({ type: 'ExpressionStatement', start: node.start, end: node.end, expression: node.declaration, wrapped: true });
      }
    } else if (node.type.startsWith('Export')) {
      edits.blank(node.start, node.end);
    } else {
      body.push(node);
    }
  }
  return body;
}

// The statement which gives the value. Empty `var`s do not count: the transpiler puts them behind everything else.
function lastOf(body) {
  const empty = (node) => node.type === 'VariableDeclaration' && node.kind === 'var' && node.declarations.every((d) => !d.init);
  return body.findLast((node) => !empty(node));
}

// The name which gives the value of a cell that ends with a declaration.
function trailingName(node) {
  if (!node) return null;
  if (node.type === 'FunctionDeclaration' || node.type === 'ClassDeclaration') return node.id.name;
  if (node.type !== 'VariableDeclaration') return null;
  const last = node.declarations[node.declarations.length - 1];
  return last.init && last.id.type === 'Identifier' ? last.id.name : null;
}

function plainScript(source, body, edits) {
  for (const node of body) {
    if (node.type === 'VariableDeclaration' && node.kind !== 'var') {
      edits.replace(node.start, node.start + node.kind.length, 'var'.padEnd(node.kind.length));
      for (const d of node.declarations) if (!d.init) edits.insert(d.end, '=void 0');
    } else if (node.type === 'ClassDeclaration') {
      edits.insert(node.start, `var ${node.id.name}=`);
      edits.insert(node.end, ';');
    }
  }
  const last = lastOf(body);
  const name = trailingName(last);
  if (name) edits.insert(source.length, `\n;${name}`);
  const hasValue = Boolean(name) || Boolean(last && last.type === 'ExpressionStatement');
  return { async: false, hasValue, scripts: [{ code: edits.apply(), columnOffset: 0 }] };
}

function importAssignment(node) {
  const request = `await import(${node.source.raw}${importOptions(node)})`;
  const parts = [];
  let namespace = null;
  for (const s of node.specifiers) {
    if (s.type === 'ImportNamespaceSpecifier') namespace = s.local.name;
    else if (s.type === 'ImportDefaultSpecifier') parts.push(`default: ${s.local.name}`);
    else parts.push(`${s.imported.raw || s.imported.name}: ${s.local.name}`);
  }
  if (namespace) return `;${namespace} = ${request};${parts.length ? `({${parts}} = ${namespace});` : ''}`;
  return parts.length ? `;({${parts}} = ${request});` : `;${request};`;
}

function importOptions(node) {
  if (!node.attributes || !node.attributes.length) return '';
  const list = node.attributes.map((a) => `${a.key.raw || JSON.stringify(a.key.name)}: ${a.value.raw}`);
  return `, { with: { ${list} } }`;
}

function asyncScripts(source, body, edits, functions) {
  const names = [];
  for (const node of body) {
    if (node.type === 'FunctionDeclaration') {
      edits.blank(node.start, node.end);
    } else {
      functions.blank(node.start, node.end);
    }
    if (node.type === 'VariableDeclaration') {
      for (const d of node.declarations) {
        patternNames(d.id, names);
        if (!d.init && node.kind !== 'var') edits.insert(d.end, '=void 0');
      }
      edits.replace(node.start, node.start + node.kind.length, ';('.padEnd(node.kind.length));
      const closed = source[node.end - 1] === ';';
      edits.replace(closed ? node.end - 1 : node.end, node.end, ');');
    } else if (node.type === 'ClassDeclaration') {
      names.push(node.id.name);
      edits.insert(node.start, `;${node.id.name}=`);
      edits.insert(node.end, ';');
    } else if (node.type === 'ImportDeclaration') {
      for (const s of node.specifiers) names.push(s.local.name);
      const lines = source.slice(node.start, node.end).replace(/[^\n]/g, '');
      edits.replace(node.start, node.end, importAssignment(node) + lines);
    }
  }
  const last = lastOf(body);
  const name = trailingName(last);
  if (name) {
    edits.insert(source.length, `\n;return ${name}`);
  } else if (last && last.type === 'ExpressionStatement') {
    const closed = source[last.end - 1] === ';';
    edits.insert(last.start, ';return (');
    edits.replace(closed ? last.end - 1 : last.end, last.end, ');');
  }
  const scripts = [];
  if (names.length) scripts.push({ code: `var ${[...new Set(names)]};`, columnOffset: 0 });
  if (body.some((node) => node.type === 'FunctionDeclaration')) scripts.push({ code: functions.apply(), columnOffset: 0 });
  scripts.push({ code: `${PREFIX}${edits.apply()}\n})()`, columnOffset: -PREFIX.length });
  return { async: true, hasValue: true, scripts };
}

// {async, hasValue, scripts: [{code, columnOffset}]}: to be run in this order; the last one gives the value, as a promise
// when async. Throws acorn's SyntaxError, with `loc`.
function rewrite(source) {
  const program = acorn.parse(source, OPTIONS);
  const edits = new Edits(source);
  const body = withoutExports(program, edits);
  if (!awaits(program)) return plainScript(source, body, edits);
  const functions = new Edits(source);
  withoutExports(program, functions);
  return asyncScripts(source, body, edits, functions);
}

module.exports = { rewrite };
