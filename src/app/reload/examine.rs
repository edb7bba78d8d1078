//! Checks that a running gateway makes of itself and of servers.
//!
//! Owns where their facts come from. Does not judge (`app/doctor/`). Invariant: nothing is changed,
//! and no client's file is read.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::ConfigReloader;
use crate::app::doctor::{self, DoctorFinding, ExaminedGateway, RunningGateway, statuses_of};
use moongate_admin::{Examiner, ProbeReport, Reloader};
use moongate_api::{Finding, PlanReport, StatusHint};
use moongate_config::edit::ConfigOperation;
use moongate_config::{ErrorTolerance, LoadOptions};
use moongate_gateway::RunningServer;

/// Examiner of a running gateway.
pub(in crate::app) struct GatewayExaminer {
    /// Reload of its config.
    pub(in crate::app) reloader: Arc<ConfigReloader>,
}

impl GatewayExaminer {
    /// Runs the checks. The worst findings come first. `None` without a config.
    async fn examine(&self) -> Option<Vec<Finding>> {
        let reloader = self.reloader.clone();
        reloader.source.as_ref()?;
        let changes = match Reloader::plan(&*reloader).await {
            PlanReport::Fine { changes, .. } => changes,
            PlanReport::Refused { .. } => Default::default(),
        };
        let states = statuses_of(&reloader.targets.gateway);
        // `spawn_blocking`: the files are read.
        let looking = tokio::task::spawn_blocking(move || {
            let source = reloader.source.as_ref()?;
            let options = LoadOptions {
                tolerance: ErrorTolerance::PerServer,
                ..(source.options)()
            };
            let loaded = moongate_config::load(&options);
            let answer = RunningGateway::Running;
            let examined = ExaminedGateway {
                login_problems: reloader.login_problems(),
                people_findings: people_findings(&reloader),
                ..ExaminedGateway::new(options, loaded, answer, changes, states)
            };
            let mut found = doctor::run_checks(&examined);
            doctor::sort(&mut found);
            Some(found.iter().map(DoctorFinding::row).collect())
        });
        looking.await.ok().flatten()
    }
}

/// Returns the problems of the company's login.
fn people_findings(reloader: &ConfigReloader) -> Vec<String> {
    let broker = reloader.targets.broker.as_ref();
    broker.map(|broker| broker.findings()).unwrap_or_default()
}

impl Examiner for GatewayExaminer {
    fn doctor(&self) -> BoxFuture<'_, Option<Vec<Finding>>> {
        Box::pin(self.examine())
    }

    fn probe(&self, operation: ConfigOperation) -> BoxFuture<'_, ProbeReport> {
        Box::pin(self.reloader.probe_new_server(operation))
    }

    fn server_hint(&self, server: &RunningServer) -> Option<StatusHint> {
        doctor::server_hint(server)
    }
}
