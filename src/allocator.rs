//! Allocator of the program. Owns its name and its count of bytes in use.
//!
//! Does not choose it (`main.rs`). Invariant: what is said here comes from the allocator itself, at
//! run time: one that was linked and is not used has no name here.

/// Has the metrics report the allocator's count of bytes in use.
pub fn report_heap_bytes() {
    moongate_telemetry::set_heap_reader(heap_bytes);
}

/// Returns the name of the allocator in use, with its version if it has one.
pub fn name() -> String {
    if let Some(version) = jemalloc_version() {
        format!("jemalloc {version}")
    } else {
        "system".to_owned()
    }
}

#[cfg(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos")))]
fn jemalloc_version() -> Option<String> {
    let counter = tikv_jemalloc_ctl::thread::allocatedp::read().ok()?;
    let before = counter.get();
    let block = std::hint::black_box(Vec::<u8>::with_capacity(4096));
    let is_counted = counter.get() > before;
    drop(block);
    let version = tikv_jemalloc_ctl::version::read().ok()?;
    is_counted.then(|| version.split('-').next().unwrap_or(version).to_owned())
}

#[cfg(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos")))]
fn heap_bytes() -> Option<f64> {
    // jemalloc caches its figures until the epoch advances.
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    tikv_jemalloc_ctl::stats::allocated::read()
        .ok()
        .map(|bytes| bytes as f64)
}

#[cfg(not(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos"))))]
fn jemalloc_version() -> Option<String> {
    None
}

#[cfg(not(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos"))))]
fn heap_bytes() -> Option<f64> {
    None
}
