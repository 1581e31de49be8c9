//! `perturb predict logpc`: LoGPC's answer for one input, and the exact simulation beside it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use perturb_models::logpc::application::{self, ApplicationTime};
use perturb_models::logpc::{Input, Kind, Parameters, Prediction, predict};
use perturb_models::mesh::comparison::{self, Row};
use perturb_models::mesh::simulation::{Seen, simulate};
use perturb_models::mesh::{Mesh, MeshError};
use perturb_present::{Table, computed};
use serde::Serialize;

use super::input::{InputError, read};
use super::profile::{ProfileArg, WithProfile};
use crate::say::json;

/// Arguments of `perturb predict logpc`.
#[derive(Args, Debug)]
pub(crate) struct LogpcArgs {
    /// The input, in YAML.
    pub file: PathBuf,
    /// The network.
    #[command(flatten)]
    pub network: ProfileArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Simulate the same traffic on the same mesh, message by message, beside the model; the input
    /// needs `network.shape`.
    #[arg(long)]
    pub simulate: bool,
    /// With --simulate: model and simulation for an eighth to eight times the message size.
    #[arg(long, requires = "simulate")]
    pub sweep: bool,
    /// Messages to simulate.
    #[arg(long, default_value_t = 200_000, requires = "simulate", value_parser = clap::value_parser!(u64).range(100..))]
    pub messages: u64,
    /// Seed of the simulation.
    #[arg(long, default_value_t = 1, requires = "simulate")]
    pub seed: u64,
}

/// Why nothing can be simulated.
#[derive(Debug, thiserror::Error)]
enum SimulationError {
    /// A mean distance names no mesh.
    #[error("--simulate needs `network.shape`, e.g. `shape: [4, 8]`: a mean distance names no mesh")]
    NoShape,
    /// The mesh is too large.
    #[error("network.{0}")]
    Mesh(MeshError),
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    prediction: Prediction,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<ApplicationTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulation: Option<Simulation>,
}

/// The simulation's part of it.
#[derive(Debug, Serialize)]
struct Simulation {
    #[serde(flatten)]
    seen: Seen,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<Vec<Row>>,
}

pub(super) fn run(args: &LogpcArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut input: Input = read(&args.file)?;
    let profile = args.network.put(|profile| input.on_profile(profile))?;
    let parameters = input
        .parameters()
        .map_err(|error| InputError::model(&args.file, error))?;
    let simulation = if args.simulate {
        Some(simulated(args, &parameters).map_err(|error| InputError::model(&args.file, error))?)
    } else {
        None
    };
    let prediction = predict(&parameters);
    let answer = Answer {
        prediction,
        application: application::time(&parameters),
        simulation,
    };
    if args.json {
        return json(out, &WithProfile { answer, profile });
    }
    table(&parameters, &answer, out)?;
    Ok(profile.map_or(Ok(()), |used| used.print(out))?)
}

fn simulated(args: &LogpcArgs, parameters: &Parameters) -> Result<Simulation, SimulationError> {
    let shape = parameters.shape.as_ref().ok_or(SimulationError::NoShape)?;
    let mesh = Mesh::new(shape, parameters.network.wiring).map_err(SimulationError::Mesh)?;
    let seen = simulate(&mesh, comparison::settings(parameters, args.messages, args.seed));
    let sweep = args
        .sweep
        .then(|| comparison::sweep(parameters, &mesh, args.messages, args.seed));
    Ok(Simulation { seen, sweep })
}

fn table(parameters: &Parameters, answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    let Answer {
        prediction,
        application,
        simulation,
    } = answer;
    let what = match parameters.pattern.kind {
        Kind::RequestReply => "request and reply",
        Kind::OneWay => "one-way messages",
        Kind::Bulk => "long messages",
    };
    writeln!(
        out,
        "{what} of {} B, {} dimensions, mean distance {} per dimension",
        parameters.message.bytes, parameters.network.dimensions, prediction.mean_distance_per_dimension
    )?;
    let mut row = |name: &str, cycles: f64| writeln!(out, "  {name:<44} {cycles:>12.1} cycles");
    row("LogP: without contention", prediction.logp_cycles)?;
    if prediction.resource_contention_cycles.is_some() {
        row("LoPC: with contention for processors", prediction.lopc_cycles)?;
    }
    row("LoGPC: with contention in the network", prediction.logpc_cycles)?;
    if let Some(contention) = prediction.network_contention_cycles {
        row("network contention per message, C_n", contention)?;
    }
    if let Some(iteration) = prediction.iteration_cycles {
        row("one send and one receive without contention", iteration)?;
    }
    if let Some(interval) = prediction.intermessage_cycles {
        row("interval of messages in a row, T_c", interval)?;
    }
    if let Some(crossover) = prediction.crossover_bytes {
        writeln!(
            out,
            "  {:<44} {crossover:>12.1} B",
            "size that hides the interrupt"
        )?;
    }
    if let Some(inflation) = prediction.inflation {
        write!(out, "  {:<44} {inflation:>12.3}", "inflation, T_c / T")?;
        match prediction.greatest_inflation {
            Some(greatest) => writeln!(out, " (at most {greatest:.3})")?,
            None => writeln!(out)?,
        }
    }
    writeln!(
        out,
        "  {:<44} {:>12.1} %",
        "utilization of a channel",
        prediction.utilization * 100.0
    )?;
    if prediction.network_contention_cycles.is_none() {
        writeln!(
            out,
            "  the network saturates: its channels cannot carry this rate"
        )?;
    }
    if let Some(application) = application {
        writeln!(
            out,
            "{}: {:.1} messages per processor",
            application.name, application.messages
        )?;
        if let (Some(blocks), Some(optimal)) = (application.blocks, application.optimal) {
            writeln!(
                out,
                "  {:<44} {blocks:>12}{}",
                "blocks",
                if optimal { " (the best)" } else { "" }
            )?;
        }
        writeln!(
            out,
            "  {:<44} {:>12.1} cycles",
            "without contention", application.logp_cycles
        )?;
        let contended = if application.blocks.is_some() {
            "with contention, at most"
        } else {
            "with contention"
        };
        writeln!(out, "  {contended:<44} {:>12.1} cycles", application.logpc_cycles)?;
        if let Some(ratio) = application.communication_ratio {
            writeln!(out, "  {:<44} {ratio:>12.3}", "communication to computation")?;
        }
    }
    if let Some(Simulation { seen, sweep }) = simulation {
        writeln!(out, "simulated, {} messages", seen.messages)?;
        let mut row = |name: &str, cycles: f64| writeln!(out, "  {name:<44} {cycles:>12.1} cycles");
        row("from one message of a node to its next", seen.period_cycles)?;
        row("network contention per message", seen.network_contention_cycles)?;
        row("wait for processors per message", seen.processor_wait_cycles)?;
        writeln!(
            out,
            "  {:<44} {:>12.1} % (busiest {:.1} %)",
            "utilization of the channels",
            seen.utilization * 100.0,
            seen.busiest * 100.0
        )?;
        if let Some(rows) = sweep {
            writeln!(out)?;
            write!(out, "{}", sweep_table(rows))?;
        }
    }
    Ok(())
}

fn sweep_table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        0,
        &[
            "message, B",
            "rho, %",
            "simulated",
            "busiest",
            "C_n, cycles",
            "simulated",
            "period, cycles",
            "simulated",
        ],
    );
    for row in rows {
        let percent = |share: f64| computed((share * 1000.0).round() / 10.0);
        let tenth = |cycles: f64| computed((cycles * 10.0).round() / 10.0);
        table.row(vec![
            computed(row.message_bytes),
            percent(row.utilization),
            percent(row.simulated_utilization),
            percent(row.simulated_busiest),
            computed(
                row.network_contention_cycles
                    .map(|cycles| (cycles * 10.0).round() / 10.0),
            ),
            tenth(row.simulated_network_contention_cycles),
            tenth(row.period_cycles),
            tenth(row.simulated_period_cycles),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: LogpcArgs,
    }

    fn output(arguments: &[&str]) -> anyhow::Result<String> {
        let command = Command::try_parse_from(["logpc"].iter().chain(arguments))?;
        let mut out = Vec::new();
        run(&command.args, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    fn data(name: &str) -> String {
        format!("{}/../models/tests/data/logpc/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn the_keys_of_the_contract() {
        let keys = |name: &str| -> Vec<String> {
            let text = output(&[&data(name), "--json"]).unwrap();
            let found: serde_json::Value = serde_json::from_str(&text).unwrap();
            found.as_object().unwrap().keys().cloned().collect()
        };
        let common = [
            "logp_cycles",
            "lopc_cycles",
            "logpc_cycles",
            "network_contention_cycles",
        ];
        let bulk = [
            "intermessage_cycles",
            "rate",
            "inflation",
            "greatest_inflation",
            "iteration_cycles",
        ];
        for name in [
            "table4-synchronous.yaml",
            "table4-asynchronous.yaml",
            "long-messages.yaml",
        ] {
            let found = keys(name);
            let has = |key: &&str| found.iter().any(|known| known == key);
            assert!(common.iter().all(has), "{name}: {found:?}");
            let expected = if name.starts_with("long") { bulk.len() } else { 1 };
            assert_eq!(
                bulk.iter().filter(|key| has(key)).count(),
                expected,
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn a_diamond_dag_says_its_bound_and_its_ratio() {
        let path = data("diamond-32kB.yaml");
        let text = output(&[&path, "--json"]).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let dag = &found["application"];
        for key in [
            "logp_cycles",
            "logpc_cycles",
            "network_contention_cycles",
            "communication_ratio",
        ] {
            assert!(dag[key].is_f64(), "{key}: {dag}");
        }
        assert_eq!(dag["blocks"], 64);
        let text = output(&[&path]).unwrap();
        assert!(
            text.contains("with contention, at most") && text.contains("0.625"),
            "{text}"
        );
    }

    #[test]
    fn simulation_needs_a_shape() {
        let error = output(&[&data("table4-synchronous.yaml"), "--simulate"]).unwrap_err();
        assert!(
            format!("{error:#}").contains("--simulate needs `network.shape`"),
            "{error:#}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input.yaml");
        let text = std::fs::read_to_string(data("table4-synchronous.yaml")).unwrap();
        let given = "dimensions: 2\n  mean_distance_per_dimension: 2";
        std::fs::write(&path, text.replace(given, "shape: [4, 8]")).unwrap();
        let path = path.display().to_string();
        let text = output(&[&path, "--simulate", "--sweep", "--messages", "2000"]).unwrap();
        assert!(text.contains("simulated, ") && text.contains("busiest"), "{text}");
    }
}
