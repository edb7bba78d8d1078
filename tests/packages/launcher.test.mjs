// Unit tests of the npm launcher, with scripts as platform packages.
//
//   node --test tests/packages/launcher.test.mjs
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

const SOURCE = new URL('../../deploy/packages/launcher/moongate.js', import.meta.url);
const ALL = ['linux-x64', 'linux-x64-musl', 'linux-arm64', 'darwin-arm64', 'win32-x64'];
const here = `${process.platform}-${process.arch}`;
const folders = [];
const started = [];
after(() => {
    started.forEach(child => child.kill('SIGKILL') && child.stdout.destroy());
    folders.forEach(folder => fs.rmSync(folder, { recursive: true, force: true }));
});

/**
 * Installs the launcher next to platform packages: `installed` has their names, with the script
 * that each runs or, as an object, with what its package.json has.
 */
function install(installed, listed = ALL, place = 'node_modules') {
    const root = fs.mkdtempSync(path.join(tmpdir(), 'moongate-launcher-'));
    folders.push(root);
    const write = (name, manifest, program, content) => {
        const folder = path.join(root, place, name);
        fs.mkdirSync(path.join(folder, 'bin'), { recursive: true });
        fs.writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ name, ...manifest }));
        const file = path.join(folder, 'bin', program);
        fs.writeFileSync(file, content);
        fs.chmodSync(file, 0o755);
        return file;
    };
    for (const [name, what] of Object.entries(installed)) {
        const script = typeof what === 'string' ? what : '';
        write(`@moongate/${name}`, typeof what === 'string' ? {} : what, 'moongate', script);
    }
    const versions = listed.map(name => [`@moongate/${name}`, '1.2.3']);
    const optionalDependencies = Object.fromEntries(versions);
    const manifest = { version: '1.2.3', optionalDependencies };
    return write('moongate', manifest, 'moongate.js', fs.readFileSync(SOURCE));
}

const runToEnd = (line, options) =>
    spawnSync(process.execPath, line, { encoding: 'utf8', ...options });
const functions = launcher => createRequire(launcher)(launcher);

/** The last folder of the package whose program was chosen, or the reason. */
function chosen(installed, machine, listed) {
    const { program, reason } = functions(install(installed, listed)).choose(machine);
    return program ? path.basename(path.dirname(path.dirname(program))) : reason;
}

const gnu = glibc => ({ platform: 'linux', arch: 'x64', glibc });
const musl = { platform: 'linux', arch: 'x64', glibc: null };

test('the package is that of the system, the processor and the libc', () => {
    const both = { 'linux-x64': {}, 'linux-x64-musl': {} };
    assert.equal(chosen(both, gnu('2.36')), 'linux-x64');
    assert.equal(chosen(both, musl), 'linux-x64-musl');
    const mac = { platform: 'darwin', arch: 'arm64' };
    assert.equal(chosen({ 'darwin-arm64': {} }, mac), 'darwin-arm64');
    const { choose } = functions(install({ 'win32-x64': {} }));
    const windows = choose({ platform: 'win32', arch: 'x64' });
    assert.match(windows.program, /win32-x64.bin.moongate\.exe$/);
});

test('the static program runs where it is the only one', () => {
    const only = { 'linux-x64-musl': {} };
    assert.equal(chosen(only, gnu('2.36')), 'linux-x64-musl');
    assert.equal(chosen(only, gnu('2.36'), ['linux-x64-musl']), 'linux-x64-musl');
});

test('a program that needs a newer glibc is passed over', () => {
    const newer = { moongate: { glibc: '2.28' } };
    const both = { 'linux-x64': newer, 'linux-x64-musl': {} };
    assert.equal(chosen(both, gnu('2.17')), 'linux-x64-musl');
    assert.equal(chosen(both, gnu('2.28')), 'linux-x64');
    assert.equal(chosen({ 'linux-x64': { moongate: { glibc: '2.4' } } }, gnu('2.17')), 'linux-x64');
    const reason = chosen({ 'linux-x64': newer }, gnu('2.17'));
    assert.match(reason, /linux-x64 needs glibc 2\.28\. .*--libc=musl/);
    const alone = chosen({ 'linux-x64': newer }, gnu('2.17'), ['linux-x64']);
    assert.equal(alone, '@moongate/linux-x64 needs glibc 2.28.');
});

test('the reason names a package that is known, and was left out', () => {
    const reason = chosen({}, gnu('2.36'));
    assert.match(reason, /^@moongate\/linux-x64 is not installed.*--omit=optional.*--no-optional/);
    assert.match(chosen({ 'linux-x64': {} }, musl), /^@moongate\/linux-x64-musl is not installed/);
    assert.equal(chosen({}, { platform: 'freebsd', arch: 'x64' }), undefined);
    assert.equal(chosen({}, { platform: 'linux', arch: 'riscv64', glibc: '2.36' }), undefined);
});

test('the error names the machine, the packages and the other ways', () => {
    const { explain } = functions(install({}, ['linux-x64', 'win32-x64']));
    const lines = explain({ platform: 'linux', arch: 'riscv64', glibc: '2.36' }).split('\n');
    assert.match(lines[0], /^error: .*moongate 1\.2\.3.* linux riscv64 with glibc 2\.36$/);
    assert.match(lines[1], /linux-x64, win32-x64/);
    assert.match(lines[2], /uvx moongate.*archive.*cargo install moongate/);
    assert.equal(lines.length, 3);
    assert.match(explain(musl), /linux x64 without glibc\n/);
    const unknown = explain({ platform: 'freebsd', arch: 'x64' }, 'a reason');
    assert.match(unknown, /freebsd x64\n {2}a reason\n/);
});

test('the launcher fails with that error, on stderr alone', () => {
    const launcher = install({}, []);
    const { status, stdout, stderr } = runToEnd([launcher]);
    assert.equal(status, 1);
    assert.equal(stdout, '');
    assert.match(stderr, new RegExp(`^error: .*${process.platform} ${process.arch}`));
});

test('a program that cannot be started is one error', () => {
    const launcher = install({ [here]: '#!/nowhere/at/all\n' });
    const { status, stderr } = runToEnd([launcher]);
    assert.equal(status, 1);
    assert.match(stderr, /^error: .*bin.moongate can't be started: [^\n]*\n$/);
});

test('the program is told what starts it again', () => {
    const { environment } = functions(install({}));
    const told = (script, env = {}, platform = 'linux') => {
        const { MOONGATE_LAUNCHER, MOONGATE_LAUNCHER_PATH } = environment(env, script, platform);
        return [MOONGATE_LAUNCHER, MOONGATE_LAUNCHER_PATH];
    };
    for (const cached of [
        '/home/me/.npm/_npx/0f/node_modules/.bin/moongate',
        'C:\\Users\\me\\AppData\\npm-cache\\_npx\\0f\\node_modules\\moongate\\bin\\moongate.js',
        '/home/me/.cache/pnpm/dlx/0f/node_modules/moongate/bin/moongate.js',
        '/tmp/bunx-0-moongate@latest/node_modules/moongate/bin/moongate.js',
        '/tmp/xfs-0f/dlx-12/node_modules/moongate/bin/moongate.js',
    ]) assert.deepEqual(told(cached), ['npx', undefined], cached);
    const exec = script => ({ npm_command: 'exec', npm_lifecycle_script: script });
    const local = '/project/node_modules/.bin/moongate';
    assert.deepEqual(told(local, exec('moongate "stdio"')), ['npx', undefined]);
    // Some other tool that npx runs, which starts an installed Moongate.
    assert.deepEqual(told('/usr/bin/moongate', exec('tool')), ['npm', '/usr/bin/moongate']);
    assert.deepEqual(told('/usr/bin/moongate'), ['npm', '/usr/bin/moongate']);
    assert.deepEqual(told(local, { npm_command: 'run-script' }), ['npm', local]);
    // What an outer Moongate was told does not count.
    const outer = { MOONGATE_LAUNCHER: 'npx', MOONGATE_LAUNCHER_PATH: '/old' };
    assert.deepEqual(told('C:\\npm\\moongate.js', outer, 'win32'), ['npm', undefined]);
    assert.deepEqual(told('/home/me/.npm/_npx/0f/moongate.js', outer), ['npx', undefined]);
});

const isUnix = process.platform !== 'win32';
const unix = (name, run) => test(name, { skip: !isUnix, timeout: 20_000 }, run);

/** Starts the launcher, and waits for the script's first line. */
async function start(script, { command, env = {} } = {}) {
    const launcher = install({ [here]: script });
    const line = command ? command(launcher) : [process.execPath, launcher];
    const child = spawn(line[0], line.slice(1), {
        stdio: ['pipe', 'pipe', 'inherit'],
        env: { ...process.env, ...env },
    });
    started.push(child);
    let output = '';
    child.stdout.setEncoding('utf8').on('data', text => (output += text));
    while (!output.includes('\n') && child.exitCode === null) await sleep(5);
    const [ended, closed] = [once(child, 'exit'), once(child.stdout, 'close')];
    return { child, ended, closed, output: () => output };
}

// Prints its process id, then each signal; ends with its input.
const RECORDER = [
    '#!/usr/bin/env python3',
    'import os, signal, sys',
    'def record(number, _): print(signal.Signals(number).name, flush=True)',
    'for name in "INT", "TERM", "HUP": signal.signal(getattr(signal, "SIG" + name), record)',
    'print(os.getpid(), flush=True)',
    'for line in sys.stdin: pass',
].join('\n');

unix('arguments, input, output and the exit code are handed on', () => {
    const launcher = install({ [here]: '#!/bin/sh\ncat\necho "$@"\nexit 7\n' });
    const done = runToEnd([launcher, 'a b', '--c'], { input: 'in\n' });
    assert.equal(done.stdout, 'in\na b --c\n');
    assert.equal(done.status, 7);
});

unix('the program finds the path that the launcher was started by', () => {
    const script = '#!/bin/sh\necho $MOONGATE_LAUNCHER $MOONGATE_LAUNCHER_PATH\n';
    const launcher = install({ [here]: script });
    const link = path.join(path.dirname(launcher), 'link');
    fs.symlinkSync(launcher, link);
    const { npm_command: _, ...env } = process.env;
    const done = spawnSync(link, { encoding: 'utf8', env });
    assert.equal(done.stdout, `npm ${link}\n`);
});

unix('the launcher ends by the signal that ended the program', async () => {
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGABRT', 'SIGINT']) {
        const launcher = install({ [here]: `#!/bin/sh\nkill -${signal.slice(3)} $$\n` });
        const done = runToEnd([launcher]);
        assert.deepEqual([done.status, done.signal], [null, signal]);
    }
});

unix('each signal reaches the program once', async () => {
    const { child, ended, output } = await start(RECORDER);
    for (const signal of ['SIGINT', 'SIGHUP', 'SIGTERM']) {
        child.kill(signal);
        await sleep(300);
    }
    child.stdin.end();
    assert.deepEqual(await ended, [0, null]);
    assert.deepEqual(output().split('\n').slice(1, -1), ['SIGINT', 'SIGHUP', 'SIGTERM']);
});

unix('Ctrl-C on a terminal reaches the program once', async () => {
    // The terminal is a pseudo-terminal of Python, which writes what a user would type.
    const typing = [
        'import os, pty, sys, time',
        'pid, fd = pty.fork()',
        'if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])',
        'said = b""',
        'while b"\\n" not in said: said += os.read(fd, 1000)',
        'time.sleep(0.3); os.write(fd, b"\\x03"); time.sleep(1); os.write(fd, b"\\x04")',
        'try:',
        '    while more := os.read(fd, 1000): said += more',
        'except OSError: pass',
        'print(said.decode())',
    ].join('\n');
    const command = launcher => ['python3', '-c', typing, process.execPath, launcher];
    const { closed, output } = await start(RECORDER, { command });
    await closed;
    assert.deepEqual(output().match(/SIG\w+/g), ['SIGINT'], output());
});

unix('under npx, the end of the shell in between stops the program', async () => {
    const env = { npm_command: 'exec', npm_lifecycle_script: 'moongate' };
    const command = launcher => ['/bin/sh', '-c', `"${process.execPath}" "${launcher}"; true`];
    // It doesn't read its input, which ends with the shell.
    const script = RECORDER.replace('for line in sys.stdin: pass', 'signal.pause()');
    const { child, closed, output } = await start(script, { command, env });
    child.kill('SIGKILL');
    await closed;
    assert.deepEqual(output().split('\n').slice(1, -1), ['SIGTERM']);
});

unix('the program ends with its input when the launcher was killed', async () => {
    const { child, closed } = await start(RECORDER);
    // This also closes its input, as it would if the client ended.
    child.kill('SIGKILL');
    await closed;
});
