//! What is written of a report and of the API: the page of metrics, the dashboard and the description name what there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use perturb_emulator::status::{
    ClassReport, Drops, Flow, Held, Lateness, QueueReport, Report, ServerReport, Sojourn, Spread,
    TimelineReport,
};
use perturb_serve::{Form, exposition, openapi};

type Done = Result<(), Box<dyn std::error::Error>>;

/// A report that says all that a report may say.
fn full() -> Report {
    let flow = |packets| Flow {
        packets,
        wire_packets: packets * 2,
        bytes: packets * 1500,
        dropped: 1,
        mean_delay_us: Some(2000.0),
        delay_ns: (packets - 1) * 2_000_000,
    };
    let timeline = TimelineReport {
        at_s: Some(1.5),
        turn: 2,
        segment: 3,
        segments: 4,
        ..TimelineReport::default()
    };
    let queue = QueueReport {
        kind: "codel".into(),
        drops: 5,
        marks: 6,
        threshold_marks: 7,
        dropping: Some(true),
        drop_probability: Some(0.25),
        average_ms: Some(2.0),
        max_p: Some(0.125),
        sojourn: Some(Sojourn {
            spread: Spread {
                buckets: vec![(1.0, 3), (f64::INFINITY, 1)],
                sum_us: 7.0,
            },
            ..Sojourn::default()
        }),
        ..QueueReport::default()
    };
    Report {
        id: "7-2".into(),
        interfaces: vec!["eth0".into()],
        pacer: "user".into(),
        lease_left_ms: Some(9500),
        classes: vec![ClassReport {
            name: "a \"b\"".into(),
            egress: flow(11),
            ingress: flow(3),
        }],
        servers: vec![ServerReport {
            name: "up".into(),
            packets: 10,
            bytes: 15000,
            tail_drops: 1,
            losses: 2,
            loss_marks: 3,
            busy_ms: 1500.0,
            max_backlog_us: 3000.0,
            backlog_us: Some(1000.0),
            timeline: Some(timeline),
            queue: Some(queue),
            ..ServerReport::default()
        }],
        drops: Drops {
            loss: 2,
            ..Drops::default()
        },
        held: Some(Held {
            stalls: 4,
            stalled_ms: 5.0,
            ..Held::default()
        }),
        lateness: Some(Lateness {
            lead_us: 50.0,
            spread: Spread {
                buckets: vec![(1.0, 2), (2.0, 3), (f64::INFINITY, 4)],
                sum_us: 30.0,
            },
            ..Lateness::default()
        }),
        ..Report::default()
    }
}

#[test]
fn values_are_in_base_units() -> Done {
    let text = exposition(&full(), Form::OpenMetrics)?;
    for line in [
        "# TYPE perturb_class_delay_seconds counter",
        "# UNIT perturb_class_delay_seconds seconds",
        r#"perturb_class_delay_seconds_total{class="a \"b\"",direction="egress"} 0.02"#,
        r#"perturb_class_bytes_total{class="a \"b\"",direction="ingress"} 4500.0"#,
        r#"perturb_server_drops_total{server="up",reason="queue"} 5.0"#,
        r#"perturb_server_busy_seconds_total{server="up"} 1.5"#,
        r#"perturb_drops_total{reason="loss"} 2.0"#,
        r#"perturb_lateness_seconds_bucket{le="0.000002"} 5"#,
        r#"perturb_lateness_seconds_bucket{le="+Inf"} 9"#,
        "perturb_lateness_seconds_count 9",
        r#"perturb_queue_sojourn_seconds_bucket{le="0.000001",server="up"} 3"#,
        r#"perturb_queue_sojourn_seconds_count{server="up"} 4"#,
        "perturb_lease_left_seconds 9.5",
        r#"perturb_emulation_info{id="7-2",interfaces="eth0",pacer="user"} 1"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|written| written == line), "no {line} in {text}");
    }
    let plain = exposition(&full(), Form::Prometheus)?;
    assert!(
        plain.contains("# TYPE perturb_class_delay_seconds_total counter"),
        "{plain}"
    );
    Ok(())
}

/// A client reads what is written, the shortest report and the longest.
#[test]
fn a_report_is_read_as_it_was_written() -> Done {
    for report in [Report::default(), full()] {
        let written = serde_json::to_string(&report)?;
        let read: Report = serde_json::from_str(&written)?;
        assert_eq!(serde_json::to_string(&read)?, written);
    }
    Ok(())
}

/// What a report does not say is no metric: 0 would be a claim.
#[test]
fn what_is_unknown_is_absent() -> Done {
    let text = exposition(&Report::default(), Form::OpenMetrics)?;
    for name in ["lateness", "queue", "timeline", "lease", "server", "class"] {
        assert!(!text.contains(&format!("perturb_{name}")), "{name}: {text}");
    }
    Ok(())
}

/// Names, kinds, labels and what they mean, as the page has them.
fn table(text: &str) -> String {
    let mut page = "<!-- generated: UPDATE_GOLDEN=1 cargo test -p perturb-serve -->\n# Metrics\n\n`--metrics` of `apply` and `run` ([how to](../howto/watch.md)). Durations are in seconds. What does \
                    not apply is absent, and counters of\na server begin at 0 when a profile brings it anew.\n\n\
                    | metric | kind | labels | |\n|---|---|---|---|\n"
        .to_owned();
    let (mut help, mut kind) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or_default().1.into();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            kind = rest.split_once(' ').unwrap_or_default().1.into();
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
            let name = name.trim_end_matches("_bucket");
            if kind == "histogram" && (name.ends_with("_sum") || name.ends_with("_count"))
                || !seen.insert(name.to_owned())
            {
                continue;
            }
            let labels = rest.split_once('}').unwrap_or_default().0;
            let labels: Vec<String> = labels
                .trim_start_matches('{')
                .split("\",")
                .filter_map(|label| Some(format!("`{}`", label.split_once('=')?.0)))
                .collect();
            page += &format!(
                "| `{name}` | {kind} | {} | {} |\n",
                labels.join(", "),
                help.trim_end_matches('.')
            );
        }
    }
    page + "\n`reason` and `event` are the names of [counters](counters.md), as `status --json` has them.\n"
}

/// Compares a file of the repository with what it is to be, or writes it anew.
fn compare(name: &str, text: &str) -> Done {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        return Ok(fs::write(path, text)?);
    }
    let written = fs::read_to_string(&path)?;
    assert!(written == text, "{name} is stale: UPDATE_GOLDEN=1 writes it anew");
    Ok(())
}

#[test]
fn the_page_of_metrics_is_up_to_date() -> Done {
    compare(
        "docs/reference/metrics.md",
        &table(&exposition(&full(), Form::OpenMetrics)?),
    )
}

#[test]
fn the_description_of_the_api_is_up_to_date() -> Done {
    compare("packaging/perturb-api.json", &(openapi() + "\n"))
}

/// Each metric that the dashboard asks for exists, with the labels that it asks for.
#[test]
fn the_dashboard_asks_for_what_there_is() -> Done {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/perturb-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let text = exposition(&full(), Form::OpenMetrics)?;
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let labels = rest
            .split(['{', ','])
            .filter_map(|part| Some(part.split_once('=')?.0));
        there.entry(name).or_default().extend(labels);
    }
    let panels = dashboard["panels"].as_array().ok_or("no panels")?;
    let mut asked = 0;
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
    {
        let expression = target["expr"].as_str().ok_or("a target without expr")?;
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|word| word.starts_with("perturb_")) {
            asked += 1;
            let labels = there
                .get(name)
                .ok_or_else(|| format!("there is no {name}: {expression}"))?;
            for label in legend
                .split("{{")
                .skip(1)
                .filter_map(|rest| Some(rest.split_once("}}")?.0))
            {
                assert!(labels.contains(label), "{name} has no label {label}: {legend}");
            }
        }
    }
    assert!(asked > 10, "{asked} metrics");
    Ok(())
}
