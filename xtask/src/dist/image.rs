//! An OCI image of one layer, without a registry or an engine: three JSON files and an archive, each named by its checksum.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    clear, created,
    wrap::{self, Wrapping},
};
use crate::{
    command::{output, run},
    workspace,
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub(super) fn write(wrapping: Wrapping<'_>, to: &Path) -> Result<()> {
    let Wrapping {
        tree,
        arch,
        epoch,
        effort,
    } = wrapping;
    let layout = workspace::own()?.join("image");
    clear(&layout)?;
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("cannot make {}", blobs.display()))?;
    let packed = layout.join("layer");
    let mut tar = wrap::tar(tree, epoch);
    run(tar.arg(effort.gzip()).arg("-cf").arg(&packed).arg("."))?;
    let content = output(
        Command::new("sh")
            .args(["-c", "gzip -dc \"$0\" | sha256sum"])
            .arg(&packed),
    );
    let content = first_word(&content.context("sha256sum failed")?);
    let layer = keep(&blobs, &packed, LAYER)?;
    let config = json!({
        "created": created(epoch)?,
        "architecture": arch.other_name(),
        "os": "linux",
        "config": { "Entrypoint": ["/usr/bin/perturb"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{content}")] },
    });
    let config = keep_json(&layout, &blobs, &config, CONFIG)?;
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = keep_json(&layout, &blobs, &manifest, MANIFEST)?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "perturb" });
    manifest["platform"] = json!({ "architecture": arch.other_name(), "os": "linux" });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), index.to_string()).context("cannot write the image's index")?;
    fs::write(
        layout.join("oci-layout"),
        json!({ "imageLayoutVersion": "1.0.0" }).to_string(),
    )
    .context("cannot write the image's version")?;
    let mut plain = wrap::tar(&layout, epoch);
    plain
        .arg("-cf")
        .arg(to)
        .args(["blobs", "index.json", "oci-layout"]);
    run(&mut plain)
}

fn first_word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

fn keep_json(layout: &Path, blobs: &Path, value: &Value, kind: &str) -> Result<Value> {
    let path = layout.join("json");
    fs::write(&path, value.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    keep(blobs, &path, kind)
}

/// Gives a file its checksum as its name; its descriptor.
fn keep(blobs: &Path, path: &Path, kind: &str) -> Result<Value> {
    let sum = first_word(&output(Command::new("sha256sum").arg(path)).context("sha256sum failed")?);
    let size = fs::metadata(path)?.len();
    fs::rename(path, blobs.join(&sum)).with_context(|| format!("cannot rename {}", path.display()))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": size }))
}
