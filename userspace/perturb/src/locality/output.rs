//! What `perturb locality` prints.

use std::io::Write;

use perturb_models::locality::cost::{Correlation, Cost, Network, correlation};
use perturb_models::locality::decision::Decision;
use perturb_models::locality::experiment::{self, Experiment};
use perturb_models::locality::thresholds::{Natural, Range, Thresholds};
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
    /// Of the natural partitioning, whatever was asked for.
    decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Skipped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Costs>,
    partitions: Vec<PartitionRow>,
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
    /// K_i of its partitions.
    multiplexing: Vec<u64>,
    /// L and requests per unit of cost by method.
    methods: Vec<MethodCost>,
    /// Over these methods; absent where L or the cost does not vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<Correlation>,
}

#[derive(Debug, Serialize)]
struct MethodCost {
    #[serde(serialize_with = "as_text")]
    method: Method,
    locality: f64,
    requests_per_cost: f64,
}

impl Costs {
    pub(super) fn of(network: &Network, document: &Document, partitioning: &Partitioning) -> Self {
        let points = experiment::points(document, network);
        let pairs: Vec<(f64, f64)> = points
            .iter()
            .map(|(_, locality, rate)| (*locality, *rate))
            .collect();
        let methods = points
            .into_iter()
            .map(|(method, locality, requests_per_cost)| MethodCost {
                method,
                locality,
                requests_per_cost,
            });
        Self {
            cost: network.cost(&partitioning.partitions),
            multiplexing: partitioning
                .partitions
                .iter()
                .map(|partition| network.multiplexing(*partition))
                .collect(),
            methods: methods.collect(),
            correlation: correlation(&pairs),
        }
    }
}

impl Answer {
    pub(super) fn of(
        document: &Document,
        method: Method,
        partitioning: &Partitioning,
        decision: Decision,
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
            decision,
            skipped: skipped.filter(|skipped| *skipped != Skipped::default()),
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
        let Decision {
            d,
            natural_always,
            single_always,
            d_alternative,
        } = self.decision;
        let always = match (natural_always, single_always) {
            (true, true) => "; the same",
            (true, false) => "; natural is better however the requests are spread (7)",
            (false, true) => "; single is better however the requests are spread (8)",
            (false, false) => "",
        };
        writeln!(
            out,
            "  L of the loops, natural to single {d:>8.4}   (6){always}; alternative {d_alternative:.4}"
        )?;
        if let Some(Skipped {
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
            multiplexing,
            methods,
            correlation,
        }) = &self.network
        {
            let most = multiplexing.iter().max().copied().unwrap_or(0);
            writeln!(
                out,
                "cost on the network {:.1}: {} loads, multiplexing up to {most}, {} requests   (5.2)",
                cost.total, cost.loads, cost.requests
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
            if let Some(Correlation { linear, rank }) = correlation {
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
    let loops = || found.points.iter().map(|point| point.loops.len());
    let (least, most) = (loops().min().unwrap_or(0), loops().max().unwrap_or(0));
    let loops = if least == most {
        format!("{most} loops")
    } else {
        format!("{least} to {most} loops")
    };
    writeln!(out, "{} random programs of {loops}   (5.2)", found.programs)?;
    match found.correlation {
        Some(correlation) => writeln!(out, "  correlation of cost and 1/L {correlation:>7.3}")?,
        None => writeln!(out, "  cost or L does not vary: no correlation")?,
    }
    Ok(())
}

/// The thresholds of overlap.
pub(super) fn thresholds(found: &Thresholds, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, found)?;
        writeln!(out)?;
        return Ok(());
    }
    let Thresholds {
        loops,
        equal_loops,
        core_paths,
        shifting_paths,
        admissible,
        alternative,
    } = found;
    writeln!(
        out,
        "{loops} loops of l paths, lambda together, l_c of them shared"
    )?;
    let range = |out: &mut dyn Write, name: &str, range: &Range| {
        let Range {
            natural_at_most,
            single_at_least,
        } = range;
        writeln!(
            out,
            "  {name:<42} natural up to {natural_at_most:.3}, single from {single_at_least:.3}"
        )
    };
    let natural = |out: &mut dyn Write, name: &str, natural: &Natural| {
        writeln!(out, "  {name:<42} natural up to {:.3}", natural.natural_at_most)
    };
    range(out, "l/lambda, any requests (Corollary 4.1)", equal_loops)?;
    range(out, "l_c/l, core paths (4.3)", core_paths)?;
    natural(out, "l_c/l, shifting paths (4.3)", shifting_paths)?;
    natural(out, "l_c/l, admissible (Theorem 6)", admissible)?;
    natural(
        out,
        "l/lambda, alternative measure (5.4)",
        &alternative.equal_loops,
    )?;
    natural(
        out,
        "l_c/l, core paths, alternative measure",
        &alternative.core_paths,
    )?;
    Ok(())
}
