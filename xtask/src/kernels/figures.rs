//! Figures of one place, from what the script has left.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{LATENCY_MS, page::WAYS};

/// A cell for each pacer.
pub(super) fn read(directory: &Path, place: &str, arch: &str, commit: &str) -> Result<Vec<Value>> {
    let text = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
    };
    let release = text("release")?.trim().to_owned();
    let processors: u64 = text("processors")?
        .trim()
        .parse()
        .context("nproc prints no number")?;
    let cell = |way: &str| -> Result<Value> {
        let mut cell = json!({
            "place": place, "kernel": release, "arch": arch, "processors": processors, "pacer": way, "commit": commit,
        });
        let of = |what: &str| text(&format!("{way}.{what}"));
        let code: i64 = of("code")?.trim().parse().context("the script noted no code")?;
        let errors = round_trip_errors(&of("pings")?);
        if code != 0 || errors.is_empty() {
            cell["refused"] = json!({ "code": code, "reason": reason(&of("errors")?) });
            return Ok(cell);
        }
        cell["replies"] = errors.len().into();
        cell["round_trip_error_us"] = json!([quantile(&errors, 0.5), quantile(&errors, 0.99)]);
        let status: Value = serde_json::from_str(&of("status")?).context("`perturb status` is not JSON")?;
        let late = &status[0]["lateness"];
        cell["late_us"] = json!([late["p50_us"], late["p99_us"]]);
        let calibration: Value = serde_json::from_str(&of("calibration")?).unwrap_or_default();
        cell["calibrate"] = json!([calibration["verdict"], largest_error(&calibration)]);
        Ok(cell)
    };
    WAYS.iter().map(|(way, _)| cell(way)).collect()
}

/// What the round trips that ping prints have more than twice the latency, us, sorted.
fn round_trip_errors(pings: &str) -> Vec<f64> {
    let times = pings
        .lines()
        .filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse::<f64>().ok());
    let mut errors: Vec<f64> = times
        .map(|ms| ((ms - 2.0 * LATENCY_MS) * 1000.0).round())
        .collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Of values that are sorted and not none, by the nearest rank: without perturb-stats, so that xtask is soon compiled.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    // A rank is small and not negative.
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Of all that a profile was calibrated for, us.
fn largest_error(calibration: &Value) -> Option<f64> {
    let classes = calibration["classes"].as_array()?.iter();
    let errors = classes.filter_map(|class| class["error_us"].as_f64());
    errors.max_by(|a, b| a.abs().total_cmp(&b.abs())).map(f64::round)
}

/// The first that the program complains of.
fn reason(errors: &str) -> String {
    let line = errors.lines().find_map(|line| line.strip_prefix("perturb: "));
    line.or_else(|| errors.lines().last())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_what_pings_take_longer() {
        let pings = "PING h2 (10.0.0.2) 56(84) bytes of data.\n\
                     64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=8.25 ms\n\
                     64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=7.99 ms\n";
        let errors = round_trip_errors(pings);
        assert_eq!(errors, [-10.0, 250.0]);
        assert_eq!(quantile(&errors, 0.5), Some(-10.0));
        assert_eq!(quantile(&errors, 0.99), Some(250.0));
        assert_eq!(quantile(&[], 0.99), None);
    }

    #[test]
    fn an_error_may_be_of_either_sign() {
        let calibration =
            json!({ "classes": [{ "error_us": 30.2 }, { "error_us": -80.7 }, { "error_us": null }] });
        assert_eq!(largest_error(&calibration), Some(-81.0));
        assert_eq!(largest_error(&Value::Null), None);
    }

    #[test]
    fn the_reason_is_the_program_s() {
        assert_eq!(reason("x\nperturb: no sch_fq\n  ways out: …\n"), "no sch_fq");
        assert_eq!(reason("sh: 1: ping: not found\n"), "sh: 1: ping: not found");
        assert_eq!(reason(""), "");
    }
}
