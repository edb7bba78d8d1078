//! Families: metrics with a series for each value of their labels. Owns the types that say which
//! labels a family has.
//!
//! Does not say what is counted (`areas.rs`). Invariant: a label is a server of the config or a
//! word of ours, never text of a peer.

use std::marker::PhantomData;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

/// Label whose values are words of ours.
pub trait MetricLabel: Copy {
    /// Name of the label.
    const KEY: &'static str;

    /// Returns the value, as the metrics show it.
    fn value(self) -> &'static str;
}

/// Label with the name of a configured server.
pub struct ByServer;

/// Labels of a family.
pub trait LabelKeys {
    /// Names, in the order of their values.
    const KEYS: &'static [&'static str];
}

impl LabelKeys for ByServer {
    const KEYS: &'static [&'static str] = &["mcp_server"];
}

impl<L: MetricLabel> LabelKeys for (L,) {
    const KEYS: &'static [&'static str] = &[L::KEY];
}

impl<L: MetricLabel> LabelKeys for (ByServer, L) {
    const KEYS: &'static [&'static str] = &["mcp_server", L::KEY];
}

impl<A: MetricLabel, B: MetricLabel> LabelKeys for (A, B) {
    const KEYS: &'static [&'static str] = &[A::KEY, B::KEY];
}

/// Values of the labels `K`.
pub trait LabelValues<K> {
    /// Passes the values on as texts.
    fn read<R>(self, then: impl FnOnce(&[&str]) -> R) -> R;
}

impl<S: AsRef<str> + ?Sized> LabelValues<ByServer> for &S {
    fn read<R>(self, then: impl FnOnce(&[&str]) -> R) -> R {
        then(&[self.as_ref()])
    }
}

impl<L: MetricLabel> LabelValues<(L,)> for L {
    fn read<R>(self, then: impl FnOnce(&[&str]) -> R) -> R {
        then(&[self.value()])
    }
}

impl<S: AsRef<str> + ?Sized, L: MetricLabel> LabelValues<(ByServer, L)> for (&S, L) {
    fn read<R>(self, then: impl FnOnce(&[&str]) -> R) -> R {
        then(&[self.0.as_ref(), self.1.value()])
    }
}

impl<A: MetricLabel, B: MetricLabel> LabelValues<(A, B)> for (A, B) {
    fn read<R>(self, then: impl FnOnce(&[&str]) -> R) -> R {
        then(&[self.0.value(), self.1.value()])
    }
}

/// Family of counters with the labels `K`.
pub struct CounterFamily<K>(pub(super) IntCounterVec, PhantomData<fn(K)>);

/// Family of gauges with the labels `K`.
pub struct GaugeFamily<K>(pub(super) IntGaugeVec, PhantomData<fn(K)>);

impl<K: LabelKeys> CounterFamily<K> {
    pub(super) fn new(name: &str, help: &str) -> prometheus::Result<Self> {
        Ok(CounterFamily(
            IntCounterVec::new(Opts::new(name, help), K::KEYS)?,
            PhantomData,
        ))
    }

    /// Returns the series with these labels. It may be kept, which saves the lookup.
    pub fn series(&self, labels: impl LabelValues<K>) -> IntCounter {
        // The texts are borrowed, so that no label is copied for a series that exists already.
        labels.read(|values| self.0.with_label_values(values))
    }

    /// Adds one to the series with these labels.
    pub fn inc(&self, labels: impl LabelValues<K>) {
        self.series(labels).inc();
    }

    /// Returns the count of the series with these labels.
    pub fn get(&self, labels: impl LabelValues<K>) -> u64 {
        self.series(labels).get()
    }
}

impl<K: LabelKeys> GaugeFamily<K> {
    pub(super) fn new(name: &str, help: &str) -> prometheus::Result<Self> {
        Ok(GaugeFamily(
            IntGaugeVec::new(Opts::new(name, help), K::KEYS)?,
            PhantomData,
        ))
    }

    /// Returns the series with these labels. It may be kept, which saves the lookup.
    pub fn series(&self, labels: impl LabelValues<K>) -> IntGauge {
        labels.read(|values| self.0.with_label_values(values))
    }

    /// Sets the series with these labels.
    pub fn set(&self, labels: impl LabelValues<K>, value: i64) {
        self.series(labels).set(value);
    }

    /// Returns the value of the series with these labels.
    pub fn get(&self, labels: impl LabelValues<K>) -> i64 {
        self.series(labels).get()
    }

    /// Removes the series with these labels, if there is one.
    pub(super) fn remove(&self, labels: impl LabelValues<K>) {
        // `Err` means that there never was one.
        let _ = labels.read(|values| self.0.remove_label_values(values));
    }
}

impl<K> Clone for CounterFamily<K> {
    fn clone(&self) -> Self {
        CounterFamily(self.0.clone(), PhantomData)
    }
}

impl<K> Clone for GaugeFamily<K> {
    fn clone(&self) -> Self {
        GaugeFamily(self.0.clone(), PhantomData)
    }
}
