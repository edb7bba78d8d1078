// Ties a Node server to this machine and to the test that started it: `node --import ./loopback.mjs SERVER`.
//
// Every listener binds to 127.0.0.1 and prints its URL, so that port 0 can be asked of servers that only know
// a fixed port on all interfaces. With LOOPBACK_TIED=1 the process ends when its standard input does.
import { createRequire } from 'node:module';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));

/** Where setup.sh put everything. */
export const home = process.env.INTEROP_HOME ?? path.join(here, '..', '..', 'target', 'interop');

/** Loads an npm package that setup.sh installed: these scripts live outside of its folder. */
export const homeRequire = createRequire(path.join(home, 'npm', 'package.json'));

export function untilStdinCloses() {
    process.stdin.on('end', () => process.exit(0)).resume();
}

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
    const done = rest.findLast(argument => typeof argument === 'function');
    this.once('listening', () => process.stderr.write(`listening on http://127.0.0.1:${this.address().port}\n`));
    return listen.call(this, { port: Number(port), host: '127.0.0.1' }, done);
};

if (process.env.LOOPBACK_TIED === '1') untilStdinCloses();
