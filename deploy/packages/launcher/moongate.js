#!/usr/bin/env node
// Launcher of the npm package: finds the platform package that fits, and runs the binary in it.
//
// Hands on arguments, stdio, signals and the exit code. Writes only if it fails: stdout is MCP's.
// Two variables tell the binary how a client can start it again later:
//
//   MOONGATE_LAUNCHER=npx   From a cache that may be emptied: `npx -y moongate@VERSION`.
//   MOONGATE_LAUNCHER=npm   Installed, globally or in a project. MOONGATE_LAUNCHER_PATH is the
//                           command's absolute path, which an update keeps. Not set on Windows, as
//                           most clients can't start a `.cmd`: the binary's own path will do there.
'use strict';
const { spawn } = require('node:child_process');
const path = require('node:path');
const { isatty } = require('node:tty');
const { version, optionalDependencies: packages } = require('../package.json');

/** Version of the glibc that Node.js runs with; `null` on a Linux with another libc. */
function runningGlibc() {
    process.report.excludeNetwork = true; // It would look up the names of all peers.
    return process.report.getReport().header.glibcVersionRuntime ?? null;
}

const isOlder = (a, b) => a.localeCompare(b, 'en', { numeric: true }) < 0;

/** Packages that may fit, best first. The musl binary is static, so it runs on any Linux. */
function candidates({ platform, arch, glibc }) {
    const name = `@moongate/${platform}-${arch}`;
    if (platform !== 'linux') return [name];
    return glibc ? [name, `${name}-musl`] : [`${name}-musl`];
}

/** The program in the first package that fits, or the first reason why none does. */
function choose(machine, resolve = name => require.resolve(`${name}/package.json`)) {
    let reason;
    for (const name of candidates(machine).filter(name => name in packages)) {
        try {
            const manifest = resolve(name);
            const needed = require(manifest).moongate?.glibc;
            if (needed && isOlder(machine.glibc, needed)) {
                const other = `${name}-musl` in packages
                    ? ' A static one: npm install --global --libc=musl moongate' : '';
                reason ??= `${name} needs glibc ${needed}.${other}`;
                continue;
            }
            const program = machine.platform === 'win32' ? 'moongate.exe' : 'moongate';
            return { program: path.join(path.dirname(manifest), 'bin', program) };
        } catch (error) {
            if (error.code !== 'MODULE_NOT_FOUND') throw error;
            reason ??= `${name} is not installed. --omit=optional and --no-optional leave it out; a`
                + ' node_modules folder from another system lacks it, too.';
        }
    }
    return { reason };
}

/** The error for a machine that no installed package fits. */
function explain({ platform, arch, glibc }, reason) {
    const libc = platform !== 'linux' ? '' : glibc ? ` with glibc ${glibc}` : ' without glibc';
    const names = Object.keys(packages).map(name => name.replace('@moongate/', ''));
    return [
        `error: no program of moongate ${version} for this machine: ${platform} ${arch}${libc}`,
        ...(reason ? [reason] : []),
        `There are packages for ${names.join(', ')}.`,
        'Other ways: `uvx moongate`, the archive of a release, or `cargo install moongate`.',
    ].join('\n  ');
}

/** The environment of the binary. */
function environment(env, script, platform) {
    const { MOONGATE_LAUNCHER_PATH: _, ...rest } = env;
    // Caches of npx, pnpm dlx, bunx and yarn dlx. npm exec also runs what a project has installed.
    const isCached = /[\\/](_npx|dlx(-[^\\/]*)?|bunx-[^\\/]*|xfs-[^\\/]*)[\\/]/.test(script);
    const isExec = env.npm_command === 'exec' && /\bmoongate\b/.test(env.npm_lifecycle_script);
    if (isCached || isExec) return { ...rest, MOONGATE_LAUNCHER: 'npx' };
    const command = platform === 'win32' ? {} : { MOONGATE_LAUNCHER_PATH: script };
    return { ...rest, MOONGATE_LAUNCHER: 'npm', ...command };
}

/** Runs the program, and ends as it ends: with its exit code, or by its signal. */
function run(program) {
    const env = environment(process.env, process.argv[1], process.platform);
    const child = spawn(program, process.argv.slice(2), { stdio: 'inherit', env });
    child.on('error', error => {
        console.error(`error: ${program} can't be started: ${error.message}`);
        process.exit(1);
    });
    let isStopping = false;
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGBREAK']) {
        process.on(signal, () => {
            isStopping ||= signal !== 'SIGHUP';
            // A terminal sends Ctrl-C to the binary as well, and a second signal ends it at once.
            // A Windows console does so for each of these, and `kill` gives no time to stop there.
            // Not `process.stdin.isTTY`: that makes the pipe non-blocking, for the binary as well.
            const isCtrlC = signal === 'SIGINT' && isatty(0);
            if (process.platform !== 'win32' && !isCtrlC) child.kill(signal);
        });
    }
    // npx starts this in a shell. Some (dash) don't pass signals on: only their end can be seen.
    const parent = process.ppid;
    if (env.MOONGATE_LAUNCHER === 'npx') setInterval(() => {
        if (process.ppid !== parent && !isStopping) isStopping = child.kill('SIGTERM');
    }, 250).unref();
    child.on('exit', (code, signal) => {
        if (signal === null) process.exit(code);
        process.removeAllListeners(signal);
        process.kill(process.pid, signal);
        // Node.js ignores some signals. This is the exit code that shells have for them.
        setTimeout(() => process.exit(128 + require('node:os').constants.signals[signal]), 500);
    });
}

if (require.main === module) {
    const glibc = process.platform === 'linux' ? runningGlibc() : undefined;
    const machine = { platform: process.platform, arch: process.arch, glibc };
    const { program, reason } = choose(machine);
    if (!program) {
        console.error(explain(machine, reason));
        process.exit(1);
    }
    run(program);
}
module.exports = { candidates, choose, environment, explain };
