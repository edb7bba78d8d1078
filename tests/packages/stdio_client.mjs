// The official SDK over stdio, as a desktop client does it: initialize, list the tools, call one.
//
//   node stdio_client.mjs NODE_MODULES COMMAND [ARGUMENT...]
//
// Prints how long it took until the answer. The command gets this environment as it is.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const [modules, command, ...args] = process.argv.slice(2);
const load = createRequire(path.join(path.resolve(modules), 'x.js'));
const { Client } = load('@modelcontextprotocol/client');
const { StdioClientTransport } = load('@modelcontextprotocol/client/stdio');

const began = performance.now();
const client = new Client({ name: 'moongate-packages', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
assert.equal(client.getServerVersion().name, 'moongate');
const { tools } = await client.listTools();
assert.ok(tools.some(tool => tool.name === 'demo__add'), JSON.stringify(tools));
const result = await client.callTool({ name: 'demo__add', arguments: { a: 20, b: 22 } });
assert.match(JSON.stringify(result.content), /42/);
const seconds = ((performance.now() - began) / 1000).toFixed(2);
await client.close();
console.log(`answered after ${seconds} s`);
