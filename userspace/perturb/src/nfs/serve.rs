//! `perturb nfs serve`.

use std::{
    io::{ErrorKind, Write as _},
    net::SocketAddr,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::signals::Signals;
use perturb_present::Table;
use perturb_workloads::nfs::server::{Config, Server, Tally};

use super::{DONE, options::ServerOptions};
use crate::cli::time::{self, within};

/// Arguments of `perturb nfs serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Everybody who reaches the address may read and change everything: listen on loopback, or on a private host.

Examples:
  perturb nfs serve --listen 127.0.0.1:2049
  perturb nfs serve --cpu-service 200us --disk-service 5ms --disks 4 --hit-ratio 90%
  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/export /mnt")]
pub(super) struct Serve {
    /// Address for NFS and mount, over TCP and UDP; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:2049", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    server: ServerOptions,
    /// End after this time.
    #[arg(long = "for", value_parser = within(time::SPAN), value_name = "TIME")]
    duration: Option<Duration>,
    /// Print JSON: where it listens, and at the end what it was asked.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Serve) -> anyhow::Result<u8> {
    serve(&args.server.config(args.listen), args.duration, args.json)
}

/// Serves until a signal comes or the time is over. The first line on stdout says where.
pub(super) fn serve(config: &Config, duration: Option<Duration>, json: bool) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime of the server")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let server = Server::start(config).await?;
        let address = server.address();
        if json {
            println!(
                "{}",
                serde_json::json!({ "listen": address.to_string(), "export": config.export })
            );
        } else {
            println!(
                "{address} serves {} over NFSv3, TCP and UDP, mount on the same port",
                config.export
            );
        }
        let over = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signals.next() => {}
            () = over => {}
        }
        let tally = server.tally();
        let text = if json {
            serde_json::to_string(&tally)? + "\n"
        } else {
            describe(&tally)
        };
        // Whoever started it may have stopped reading.
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(DONE),
        }
    })
}

fn describe(tally: &Tally) -> String {
    let total: u64 = tally.calls.values().sum();
    let mut table = Table::new(1, &["procedure", "calls", "percent"]);
    for (procedure, calls) in &tally.calls {
        let percent = 100.0 * *calls as f64 / total as f64;
        table.row(vec![
            procedure.to_string(),
            calls.to_string(),
            format!("{percent:.2}"),
        ]);
    }
    format!(
        "{table}{total} calls, {} failed, {} repeated\n",
        tally.failures, tally.repeated
    )
}
