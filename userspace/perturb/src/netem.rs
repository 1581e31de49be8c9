//! `perturb import netem` and `perturb export netem`.

use std::{io::Read as _, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use perturb_emulator::prepared::Prepared;
use perturb_profile::netem::{export, import};

use crate::cli::exit::{DONE, FAILED};

const IMPORTS: &str = "\
Examples:
  perturb import netem 'delay 100ms 10ms 25% distribution normal loss gemodel 1% 10%'
  tc -s qdisc show dev eth0 | perturb import netem > eth0.yaml
  tc -j qdisc show | perturb import netem --device eth0
  tcshow eth0 | perturb import netem

What becomes of the options, as keys of a server:
  delay 100ms 10ms 25% distribution normal
               latency: 100ms, jitter: { distribution: normal, scale: 10ms, correlation: 25%, reorder: true }
  loss 1% 25%  loss: { random: 1%, correlation: 25% }; gemodel: gilbert_elliott; state: state
  duplicate, corrupt, reorder 25% 50% gap 5
               the same words: { probability: 25%, correlation: 50%, gap: 5 }
  rate 1mbit 32 48 5
               bandwidth: 1Mbit/s, framing: { packet_overhead: 32, cell_size: 48, cell_overhead: 5 }
  slot 1ms 9ms packets 5
               slot: { min: 1ms, max: 9ms, packets: 5 }, behind jitter and losses in a server of its own
  loss 1% ecn  loss: { random: 1%, ecn: true }

What is not the same:
  correlation  netem's correlated draws change rate and jitter; here P is lost, and losses k packets apart correlate by C^k
  slot         netem asks for slots while packets are in the delay; perturb once they are ready
  rate         netem loses packets before they take time, perturb behind the rate
  limit        netem counts packets under way, too; the buffer counts those that wait for the rate
  no rate      the limit is left out: the usual 1000 lets no more than 1000 packets pass in a delay
  delay T J    packets overtake unless there is a rate: `reorder: true`. A pfifo keeps no order
  change       what a `tc qdisc change` does not say stays or goes as in the kernel
  Of a jitter, tc shows no distribution: add it by hand. Of a time it shows three digits; `tc -j`
  shows all. The netems of ifbs are of what comes in.";

const EXPORTS: &str = "\
Example:
  perturb export netem my.yaml --device eth0";

/// Arguments of `perturb import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// netem's options, a command of tc, what `tc qdisc show` or `tc -j qdisc show` prints, or tcconfig's JSON
    ///
    /// Prints a profile. What it does not do is said on standard error.
    #[command(after_help = IMPORTS)]
    Netem(ImportNetem),
}

#[derive(Args, Debug)]
struct ImportNetem {
    /// The text; without it, standard input.
    #[arg(value_name = "TEXT", num_args = 0.., allow_negative_numbers = true)]
    text: Vec<String>,
    /// The netems of this interface only, and of the ifb that gets what comes in there.
    #[arg(long, value_name = "IF")]
    device: Option<String>,
    /// Fail, exit code 1, if the profile does not do all of it.
    #[arg(long)]
    strict: bool,
}

/// Arguments of `perturb export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(subcommand)]
    to: To,
}

#[derive(Debug, Subcommand)]
enum To {
    /// Commands of tc that do what a profile says
    ///
    /// What they do not do is said on standard error.
    #[command(after_help = EXPORTS)]
    Netem(ExportNetem),
}

#[derive(Args, Debug)]
struct ExportNetem {
    /// The profile.
    profile: PathBuf,
    /// The interface.
    #[arg(long, value_name = "IF", default_value = "eth0")]
    device: String,
    /// Fail, exit code 1, if the commands do not do all of it.
    #[arg(long)]
    strict: bool,
}

/// Runs `import`; its exit code.
pub(crate) fn run_import(args: &ImportArgs) -> anyhow::Result<u8> {
    let From::Netem(args) = &args.from;
    let text = if args.text.is_empty() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("reading standard input")?;
        text
    } else {
        args.text.join(" ")
    };
    let imported = import(&text, args.device.as_deref())?;
    print!("{}", imported.profile);
    Ok(told(&imported.lost, args.strict))
}

/// Runs `export`; its exit code.
pub(crate) fn run_export(args: &ExportArgs) -> anyhow::Result<u8> {
    let To::Netem(args) = &args.to;
    let prepared = Prepared::checked(&args.profile)?;
    let exported = export(&prepared.profile, &args.device);
    for command in &exported.commands {
        println!("{command}");
    }
    Ok(told(&exported.lost, args.strict))
}

/// Says what is lost.
fn told(lost: &[String], strict: bool) -> u8 {
    for what in lost {
        eprintln!("perturb: left out: {what}");
    }
    if strict && !lost.is_empty() { FAILED } else { DONE }
}
