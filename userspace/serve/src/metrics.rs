//! A report as metrics: OpenMetrics 1.0, and the text format of Prometheus (0.0.4) for those that do not ask for it.

mod families;

use std::fmt;

use anyhow::Context as _;
use hyper::header::HeaderValue;
use perturb_emulator::status::{Report, Spread};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

use self::families::families;

/// The kind of Prometheus's format.
const PLAIN: &str = "text/plain";

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format, 0.0.4.
    Prometheus,
}

impl Form {
    /// OpenMetrics for those who say that they take it, and like it no less than the other form. A version that is not 1.0.0 is none
    /// that is spoken here.
    pub(crate) fn accepted(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let quality = |kind: &str| {
            let of_kind = accept.split(',').filter_map(|one| {
                let mut parts = one.split(';').map(str::trim);
                let named = parts.next()?.eq_ignore_ascii_case(kind);
                let (mut quality, mut spoken) = (1.0, true);
                for part in parts {
                    match part.split_once('=') {
                        Some(("q", q)) => quality = q.parse().unwrap_or(0.0),
                        Some(("version", version)) if kind != PLAIN => spoken = version == "1.0.0",
                        _ => {}
                    }
                }
                (named && spoken).then_some(quality)
            });
            of_kind.fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality(PLAIN) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A report as text.
///
/// # Errors
/// None are known.
pub fn exposition(report: &Report, form: Form) -> anyhow::Result<String> {
    let mut registry = Registry::default();
    // A collector outlives what it is registered with: it has the samples, which are written in one go.
    registry.register_collector(Box::new(Families(families(report)?)));
    let mut written = String::new();
    match form {
        Form::OpenMetrics => text::encode(&mut written, &registry),
        Form::Prometheus => prometheus_text::encode(&mut written, &registry),
    }
    .context("writing the metrics")?;
    Ok(written)
}

/// A metric family, and all that is known of it now.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    samples: Samples,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
enum Samples {
    Counters(Vec<(Labels, f64)>),
    Gauges(Vec<(Labels, f64)>),
    Info(Labels),
    Histograms(Vec<(Labels, Spread)>),
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            family.encode(&mut encoder)?;
        }
        Ok(())
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = match self.samples {
            Samples::Counters(_) => MetricType::Counter,
            Samples::Gauges(_) => MetricType::Gauge,
            Samples::Info(_) => MetricType::Info,
            Samples::Histograms(_) => MetricType::Histogram,
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        match &self.samples {
            Samples::Counters(samples) => {
                for (labels, value) in samples {
                    ConstCounter::new(*value).encode(family.encode_family(labels)?)?;
                }
            }
            Samples::Gauges(samples) => {
                for (labels, value) in samples {
                    ConstGauge::new(*value).encode(family.encode_family(labels)?)?;
                }
            }
            Samples::Info(labels) => {
                Info::new(labels.clone()).encode(family.encode_family(&Labels::new())?)?;
            }
            Samples::Histograms(samples) => {
                for (labels, Spread { buckets, sum_us }) in samples {
                    let seconds: Vec<(f64, u64)> =
                        buckets.iter().map(|&(us, packets)| (us / 1e6, packets)).collect();
                    let packets = buckets.iter().map(|(_, packets)| packets).sum();
                    let mut sample = family.encode_family(labels)?;
                    sample.encode_histogram::<Labels>(sum_us / 1e6, packets, &seconds, None)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_want_it() {
        let form = |accept| Form::accepted(Some(&HeaderValue::from_static(accept)));
        // Prometheus 2.45, and 3.
        let old = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;\
                   version=0.0.4;q=0.5,*/*;q=0.1";
        let new = "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in [
            old,
            new,
            "application/openmetrics-text",
            "text/plain, application/openmetrics-text",
        ] {
            assert_eq!(form(accept), Form::OpenMetrics, "{accept}");
        }
        for accept in [
            "*/*",
            "",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text; version=0.0.1",
            "application/openmetrics-text;q=0.1, text/plain",
        ] {
            assert_eq!(form(accept), Form::Prometheus, "{accept}");
        }
        assert_eq!(Form::accepted(None), Form::Prometheus);
    }
}
