//! What `perturb locality` prints.

use std::io::Write;

use perturb_models::locality::cost::{Correlation, Cost, Network, correlation};
use perturb_models::locality::experiment::{self, Experiment};
use perturb_models::locality::{Document, Locality, Method, Partition, Partitioning};
use serde::{Serialize, Serializer};

use super::capture::Skipped;

/// Partitions that the table shows.
const SHOWN: usize = 40;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    #[serde(flatten)]
    measures: Locality,
    #[serde(serialize_with = "as_text")]
    method: Method,
    requests: usize,
    paths: usize,
    /// Optimal, where searched: no partitioning has a greater L than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<SkippedCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Costs>,
    partitions: Vec<PartitionRow>,
}

#[derive(Debug, Serialize)]
struct SkippedCounts {
    not_ip: u64,
    short: u64,
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct PartitionRow {
    #[serde(flatten)]
    partition: Partition,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_set: Option<Vec<String>>,
}

fn as_text<S: Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(method)
}

/// What partitionings cost on a time-multiplexed network.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    /// The partitioning asked for.
    cost: Cost,
    /// L and requests per unit of cost by method.
    methods: Vec<MethodCost>,
    /// Over these methods; absent where L or the cost does not vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<Coefficients>,
}

#[derive(Debug, Serialize)]
struct MethodCost {
    #[serde(serialize_with = "as_text")]
    method: Method,
    locality: f64,
    requests_per_cost: f64,
}

#[derive(Debug, Serialize)]
struct Coefficients {
    linear: f64,
    rank: f64,
}

impl Costs {
    pub(super) fn of(network: &Network, document: &Document, partitioning: &Partitioning) -> Self {
        let points = experiment::points(document, network);
        let found = correlation(
            points
                .iter()
                .map(|(_, locality, rate)| (*locality, *rate))
                .collect(),
        );
        let methods = points
            .into_iter()
            .map(|(method, locality, requests_per_cost)| MethodCost {
                method,
                locality,
                requests_per_cost,
            });
        Self {
            cost: network.cost(&document.sequence, partitioning),
            methods: methods.collect(),
            correlation: found.map(|Correlation { linear, rank, .. }| Coefficients { linear, rank }),
        }
    }
}

impl Answer {
    pub(super) fn of(
        document: &Document,
        method: Method,
        partitioning: &Partitioning,
        skipped: Option<Skipped>,
        network: Option<Costs>,
        working_sets: bool,
    ) -> Self {
        let sequence = &document.sequence;
        let sets = working_sets.then(|| partitioning.working_sets(sequence));
        let mut sets = sets.map(Vec::into_iter);
        let row = |partition: &Partition| {
            let working_set = sets.as_mut().and_then(Iterator::next);
            let labels = |set: Vec<u32>| {
                set.into_iter()
                    .map(|path| sequence.label(path).to_owned())
                    .collect()
            };
            PartitionRow {
                partition: *partition,
                working_set: working_set.map(labels),
            }
        };
        Self {
            measures: partitioning.locality(),
            method,
            requests: sequence.len(),
            paths: sequence.paths(),
            bound: partitioning.bound,
            skipped: skipped.filter(|skipped| *skipped != Skipped::default()).map(
                |Skipped {
                     not_ip,
                     short,
                     truncated,
                 }| SkippedCounts {
                    not_ip,
                    short,
                    truncated,
                },
            ),
            network,
            partitions: partitioning.partitions.iter().map(row).collect(),
        }
    }

    pub(super) fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Locality {
            locality,
            spatial,
            temporal,
            alternative,
        } = self.measures;
        writeln!(
            out,
            "{} requests over {} paths, partition: {}, {} partitions",
            self.requests,
            self.paths,
            self.method,
            self.partitions.len()
        )?;
        writeln!(out, "  locality L    {locality:>12.4}   (3)")?;
        writeln!(out, "  spatial S     {spatial:>12.4}   (1)")?;
        writeln!(out, "  temporal T    {temporal:>12.4}   (2)")?;
        writeln!(out, "  alternative   {alternative:>12.4}   (5.4)")?;
        if let Some(bound) = self.bound {
            writeln!(
                out,
                "  searched, not proven: no partitioning exceeds L = {bound:.4}"
            )?;
        }
        if let Some(SkippedCounts {
            not_ip,
            short,
            truncated,
        }) = self.skipped
        {
            let end = if truncated {
                "; the file ends inside a packet"
            } else {
                ""
            };
            writeln!(
                out,
                "  skipped: {not_ip} packets that are not IP, {short} cut too short{end}"
            )?;
        }
        for (number, row) in self.partitions.iter().take(SHOWN).enumerate() {
            let Partition { requests, paths } = row.partition;
            write!(
                out,
                "  partition {:<6} {requests:>10} requests {paths:>8} paths",
                number + 1
            )?;
            match &row.working_set {
                Some(set) => writeln!(out, "   {}", set.join(" "))?,
                None => writeln!(out)?,
            }
        }
        if self.partitions.len() > SHOWN {
            writeln!(
                out,
                "  … and {} more; --json prints all",
                self.partitions.len() - SHOWN
            )?;
        }
        if let Some(Costs {
            cost,
            methods,
            correlation,
        }) = &self.network
        {
            writeln!(
                out,
                "cost on the network {:.1}: {} loads, {} paths established, {} requests",
                cost.total, cost.loads, cost.established, cost.requests
            )?;
            for MethodCost {
                method,
                locality,
                requests_per_cost,
            } in methods
            {
                let method = method.to_string();
                writeln!(
                    out,
                    "  {method:<12} L {locality:>12.4}   requests per cost {requests_per_cost:>10.5}"
                )?;
            }
            if let Some(Coefficients { linear, rank }) = correlation {
                writeln!(
                    out,
                    "  correlation of log L and log rate {linear:.3}, of ranks {rank:.3}"
                )?;
            }
        }
        Ok(())
    }
}

/// The correlation experiment.
pub(super) fn experiment(found: &Experiment, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, found)?;
        writeln!(out)?;
        return Ok(());
    }
    let Experiment {
        programs,
        overall,
        mean_rank_within_program,
    } = found;
    writeln!(
        out,
        "{programs} random programs, {} partitionings",
        overall.points.len()
    )?;
    writeln!(
        out,
        "  correlation of log L and log(requests per cost)  {:>7.3}",
        overall.linear
    )?;
    writeln!(
        out,
        "  correlation of their ranks                       {:>7.3}",
        overall.rank
    )?;
    writeln!(
        out,
        "  mean rank correlation within a program           {mean_rank_within_program:>7.3}"
    )?;
    Ok(())
}
