//! What carries bytes: pipes in memory, some of which hold little, are slow, stand still, or are
//! cut anywhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf,
    WriteHalf,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::sim::plans::ServerPlan;
use crate::sim::rng::Rng;
use crate::sim::server::{ClientTalk, OutputSink, SimServer};
use crate::sim::world::SimWorld;

/// What a server may say before anybody reads it.
pub(crate) const WAITING: usize = 64;

/// Both ends of a connection.
///
/// `cut`: how likely a bad one is cut with each piece that it carries, in a thousand.
pub(crate) fn connection(
    world: &Arc<SimWorld>,
    rng: &mut Rng,
    cut: u64,
) -> (DuplexStream, DuplexStream) {
    // Where a pipe holds little, whoever writes waits for whoever reads.
    let size = [256, 2048, 64 * 1024][rng.pick(3)];
    let (ours, theirs) = tokio::io::duplex(size);
    if world.is_calm() || !rng.one_in(3) {
        return (ours, theirs);
    }
    let (near, far) = tokio::io::duplex(size);
    let world = world.clone();
    let there = rng.fork();
    let back = rng.fork();
    let from = tokio::io::split(theirs);
    let to = tokio::io::split(near);
    world.clone().spawn("a bad connection", async move {
        // The end of one direction is that of both.
        tokio::select! {
            () = carry(&world, from.0, to.1, there, cut) => {}
            () = carry(&world, to.0, from.1, back, cut) => {}
        }
    });
    (ours, far)
}

/// One direction of a bad connection.
async fn carry(
    world: &SimWorld,
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut rng: Rng,
    cut: u64,
) {
    let mut bytes = [0; 1024];
    loop {
        let most = 1 + rng.pick(bytes.len());
        let Ok(read @ 1..) = from.read(&mut bytes[..most]).await else {
            return;
        };
        if !world.is_calm() {
            match rng.below(1000) {
                n if n < cut => {
                    world.count("a connection was cut");
                    return;
                }
                n if n < cut + 8 => {
                    world.count("a connection stood still");
                    tokio::time::sleep(rng.time(Duration::from_secs(60))).await;
                }
                n if n < 150 => tokio::time::sleep(rng.time(Duration::from_secs(1))).await,
                _ => {}
            }
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// Serves one pipe until it breaks.
pub(crate) async fn serve(
    world: Arc<SimWorld>,
    kind: ServerPlan,
    (reader, mut writer): (DuplexStream, DuplexStream),
    mut rng: Rng,
) {
    let (out, mut lines) = mpsc::channel::<Vec<u8>>(WAITING);
    let broken = CancellationToken::new();
    let talk = Arc::<ClientTalk>::default();
    let server = Arc::new(SimServer {
        world: world.clone(),
        kind,
        out: OutputSink::Pipe(out),
        broken: broken.clone(),
        talk,
    });
    let writing = async {
        while let Some(line) = lines.recv().await {
            if writer.write_all(&line).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        // The remains of a truncated line aren't a message.
        while let Ok(1..) = reader.read_until(b'\n', &mut line).await
            && line.ends_with(b"\n")
        {
            server.receive(&std::mem::take(&mut line), &mut rng);
            if !world.is_calm() && rng.one_in(60) {
                world.count("a server stopped reading");
                tokio::time::sleep(rng.time(Duration::from_secs(50))).await;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
        () = broken.cancelled() => {}
    }
    broken.cancel();
}
