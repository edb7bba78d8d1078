//! Metrics of the process. Owns their names and the step from a reading to them.
//!
//! Does not read the system (`process.rs`). Invariant: the counter of CPU time never goes back.

use prometheus::{Counter, Gauge};

use super::family::GaugeFamily;
use super::registration::MetricRegistrar;
use super::{GaugeHandle, MemoryHolderKind};
use crate::process;

/// Resources that the process uses.
pub(crate) struct ProcessMetrics {
    cpu_seconds: Counter,
    resident_bytes: Gauge,
    open_fds: Gauge,
    threads: Gauge,
    heap_bytes: Option<Gauge>,
    pub(crate) memory_limit: GaugeHandle,
    pub(crate) memory_reserved: GaugeFamily<(MemoryHolderKind,)>,
}

impl ProcessMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        r.float_gauge(
            "process_start_time_seconds",
            "Time when the process started (Unix time).",
        )
        .set(process::start_time());
        ProcessMetrics {
            cpu_seconds: r.float_counter("process_cpu_seconds_total", "CPU time of the process."),
            resident_bytes: r.float_gauge(
                "process_resident_memory_bytes",
                "Resident memory of the process.",
            ),
            open_fds: r.float_gauge("process_open_fds", "Open file descriptors of the process."),
            threads: r.float_gauge("process_threads", "Threads of the process."),
            // Only where the allocator counts: a constant zero would look like a measurement.
            heap_bytes: process::usage()
                .heap_bytes
                .map(|_| r.float_gauge("moongate_heap_bytes", "Allocated heap bytes.")),
            memory_reserved: r.gauges(
                "moongate_memory_reserved_bytes",
                "Bytes of messages above 16 KiB that the gateway holds.",
            ),
            memory_limit: r.gauge(
                "moongate_memory_limit_bytes",
                "Memory that the gateway may use. 0: no limit.",
            ),
        }
    }

    /// Reads the system.
    pub(super) fn update(&self) {
        let usage = process::usage();
        // Scrapes may overlap, and a counter must not go back.
        self.cpu_seconds
            .inc_by((usage.cpu_seconds - self.cpu_seconds.get()).max(0.0));
        self.resident_bytes.set(usage.resident_bytes);
        self.open_fds.set(usage.open_fds);
        self.threads.set(usage.threads);
        if let (Some(gauge), Some(bytes)) = (&self.heap_bytes, usage.heap_bytes) {
            gauge.set(bytes);
        }
    }
}
