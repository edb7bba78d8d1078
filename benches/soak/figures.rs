//! Figures of recovery.

use crate::args::Args;
use anyhow::{Result, bail};

pub(crate) async fn measure(_: &Args) -> Result<()> {
    bail!("not yet")
}
