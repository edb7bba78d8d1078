//! Checks that a running gateway makes of itself.
//!
//! Owns where their facts come from. Does not judge (`app/doctor/`). Invariant: nothing is changed, and no client's file is
//! read.

use serde_json::Value;

use super::ConfigReloader;
use crate::app::doctor::{self, DoctorFinding, ExaminedGateway, RunningGateway, statuses_of};
use moongate_admin::AdminControl as _;
use moongate_config::{ErrorTolerance, LoadOptions};

impl ConfigReloader {
    /// Runs the checks. The worst findings come first. `None` without a config.
    pub(super) async fn examine(&self) -> Option<Vec<Value>> {
        let own = self.self_ref.upgrade().filter(|own| own.source.is_some())?;
        let (_, plan) = self.plan().await;
        let states = statuses_of(&self.targets.gateway);
        // `spawn_blocking`: the files are read.
        let looking = tokio::task::spawn_blocking(move || {
            let source = own.source.as_ref()?;
            let options = LoadOptions { tolerance: ErrorTolerance::PerServer, ..(source.options)() };
            let loaded = moongate_config::load(&options);
            let changes = plan["changes"].clone();
            let examined = ExaminedGateway::new(options, loaded, RunningGateway::Running, changes, states);
            let mut found = doctor::run_checks(&examined);
            doctor::sort(&mut found);
            Some(found.iter().map(DoctorFinding::json).collect())
        });
        looking.await.ok().flatten()
    }
}
