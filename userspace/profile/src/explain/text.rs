//! An explanation as text.

use std::fmt;

use super::{Explanation, LinkMeaning, PathMeaning};
use crate::model::{Acknowledgments, Name};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEADER: [&str; 9] = [
            "class",
            "direction",
            "overhead",
            "latency",
            "lone frame",
            "bandwidth",
            "longest wait",
            "loss",
            "servers",
        ];
        let mut rows: Vec<[String; 9]> = vec![HEADER.map(str::to_owned)];
        for class in &self.classes {
            for (direction, path) in [("egress", &class.egress), ("ingress", &class.ingress)] {
                // Of a matrix a line below says so, once.
                if path.is_some() || !self.each_sends {
                    rows.push(row(&class.name, direction, path.as_ref()));
                }
            }
        }
        if rows.len() > 1 {
            write_table(f, &rows)?;
            f.write_str("\n")?;
        }
        if let Some(topology) = &self.topology {
            writeln!(f, "{} for up to {} hosts\n", topology.kind, topology.hosts)?;
            let edge = if topology.kind == "tree" { "height" } else { "link" };
            let header = [edge, "latency", "bandwidth", "longest wait"].map(str::to_owned);
            let link = |(height, link): (usize, &LinkMeaning)| {
                let limits = [
                    link.bandwidth.map(|rate| rate.to_string()),
                    link.longest_wait.map(|wait| wait.to_string()),
                ];
                let [bandwidth, wait] = limits.map(or_no_limit);
                [height.to_string(), link.latency.to_string(), bandwidth, wait]
            };
            let rows: Vec<_> = [header]
                .into_iter()
                .chain((1..).zip(&topology.links).map(link))
                .collect();
            write_table(f, &rows)?;
            f.write_str("\n")?;
        }
        let frame = self.frame.bytes();
        writeln!(
            f,
            "One way, for a frame of {frame} bytes. Held at most {}, {} at once.",
            self.horizon, self.held
        )?;
        if self.each_sends {
            f.write_str(
                "Each host that has the profile delays what it sends to a group. On one machine alone, `here: GROUP` of a matrix \
                 does both ways.\n",
            )?;
        }
        if self.slots {
            f.write_str("Packets wait for a slot behind their service; latency and jitter come on top.\n")?;
        }
        self.jitter
            .iter()
            .try_for_each(|jitter| writeln!(f, "{jitter}"))?;
        self.changes
            .iter()
            .try_for_each(|change| writeln!(f, "{change}"))?;
        if let Some(acknowledgments) = self.acknowledgments {
            f.write_str(match acknowledgments {
                Acknowledgments::Charged => {
                    "The overhead is burnt for each wire packet, TCP's acknowledgments included; `acknowledgments: free` \
                     leaves those out.\n"
                }
                Acknowledgments::Free => {
                    "The overhead is burnt for each wire packet but TCP's acknowledgments that carry no data.\n"
                }
            })?;
        }
        self.warnings
            .iter()
            .try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

/// Columns as wide as their widest cell.
fn write_table<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    rows.iter().try_for_each(|row| {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(f, "{}", cells.join("  ").trim_end())
    })
}

fn or_no_limit(present: Option<String>) -> String {
    present.unwrap_or_else(|| "no limit".to_owned())
}

fn row(class: &Name, direction: &str, path: Option<&PathMeaning>) -> [String; 9] {
    let blank = String::new;
    let Some(path) = path else {
        let untouched = "passes untouched".to_owned();
        return [
            class.to_string(),
            direction.to_owned(),
            blank(),
            blank(),
            blank(),
            blank(),
            blank(),
            blank(),
            untouched,
        ];
    };
    let servers: Vec<&str> = path.servers.iter().map(Name::as_str).collect();
    [
        class.to_string(),
        direction.to_owned(),
        path.overhead.to_string(),
        path.latency.to_string(),
        path.lone_frame.to_string(),
        or_no_limit(path.bandwidth.map(|rate| rate.to_string())),
        or_no_limit(path.longest_wait.map(|wait| wait.to_string())),
        path.capable_loss.map_or(path.loss.to_string(), |capable| {
            format!("{}, ECN-capable {capable}", path.loss)
        }),
        servers.join(" > "),
    ]
}
