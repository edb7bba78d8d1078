// An npm registry on loopback that knows only what is published to it: verdaccio, without uplinks.
//
//   node registry.mjs NODE_MODULES FOLDER
//
// FOLDER gets `storage`, and `registry.json` with URL and token as soon as it listens.
import { once } from 'node:events';
import { renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const [modules, folder] = process.argv.slice(2).map(name => path.resolve(name));
const { runServer } = createRequire(path.join(modules, 'x.js'))('verdaccio');

const server = await runServer({
    self_path: folder,
    configPath: path.join(folder, 'config.yaml'),
    storage: path.join(folder, 'storage'),
    auth: { htpasswd: { file: path.join(folder, 'htpasswd'), algorithm: 'bcrypt', rounds: 4 } },
    uplinks: {},
    packages: { '**': { access: '$all', publish: '$authenticated' } },
    max_body_size: '300mb',
    web: { enable: false },
    log: { type: 'stdout', level: 'warn' },
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const url = `http://127.0.0.1:${server.address().port}/`;

const user = { name: 'publisher', password: 'a-password-of-the-tests' };
const answer = await fetch(`${url}-/user/org.couchdb.user:${user.name}`, {
    method: 'PUT',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(user),
});
const { token } = await answer.json();
const file = path.join(folder, 'registry.json');
writeFileSync(`${file}.new`, JSON.stringify({ url, token }));
renameSync(`${file}.new`, file);
