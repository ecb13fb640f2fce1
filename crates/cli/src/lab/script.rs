//! `kiban lab script`: job scripts that run the shards of a plan.
//!
//! Purpose   run a plan on a cluster from a single file: each job runs `kiban lab run --shard`, and the last
//!           step merges the records.
//! Format    shell for Slurm, HyperQueue and GNU parallel, YAML for Kubernetes. If the program is not in the
//!           PATH, the variable `KIBAN` gives its path.
//! Limits    the directories must be shared by all machines. Site-specific settings (partitions, accounts,
//!           quotas) must be added by hand; comments in the files say where.

use clap::{Args, ValueEnum};
use kiban_lab::engine::{Question, Time};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print a job script that runs a plan in shards and merges them.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab script slurm map.toml --shards 8 > map.sbatch && sbatch map.sbatch\
        \n  kiban lab script hyperqueue map.toml --shards 32 > map.sh && sh map.sh\
        \n  kiban lab script kubernetes map.toml --shards 8 --image registry/kiban | kubectl apply -f -\
        \n  kiban lab script parallel map.toml --shards 8 | sh")]
pub(super) struct Script {
    /// Job system.
    scheduler: Scheduler,
    /// Plan (TOML).
    plan: PathBuf,
    /// Number of shards.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    shards: u32,
    /// Directory of the shards; 'merged' below it gets all records [default: the plan's name with .shards].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Processors per shard.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Container image with the program, for Kubernetes.
    #[arg(long, value_name = "NAME", default_value = "kiban")]
    image: String,
    /// Persistent volume claim for the records, for Kubernetes.
    #[arg(long, value_name = "NAME", default_value = "kiban-lab")]
    claim: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scheduler {
    /// A job array: submit it with sbatch.
    Slurm,
    /// An indexed job: apply it with kubectl.
    Kubernetes,
    /// A task array: it submits itself with hq.
    #[value(name = "hyperqueue")]
    HyperQueue,
    /// GNU parallel on this machine.
    Parallel,
}

impl Script {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (_, question) = super::plan::plan(&self.plan)?;
        let text = match self.scheduler {
            Scheduler::Slurm => self.slurm(question)?,
            Scheduler::Kubernetes => self.kubernetes()?,
            Scheduler::HyperQueue => self.hyperqueue()?,
            Scheduler::Parallel => self.parallel(question)?,
        };
        crate::output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the beginning of a script, which sets variables for the program, the plan and the output
    /// directory.
    fn names(&self) -> Result<String, String> {
        let plan = absolute(&self.plan)?;
        let out = absolute(&self.out.clone().unwrap_or_else(|| super::plan::folder(&self.plan, ".shards")))?;
        Ok(format!(
            "set -eu\nexport KIBAN=\"${{KIBAN:-kiban}}\"\nexport PLAN={}\nexport OUT={}\n",
            quoted(&plan)?,
            quoted(&out)?
        ))
    }

    /// Returns the command that runs a shard.
    fn shard(&self, number: &str) -> String {
        let Script { shards, jobs, .. } = self;
        format!(
            "\"$KIBAN\" lab run \"$PLAN\" --out \"$OUT/shard-{number}\" --shard \"{number}/{shards}\" --jobs \
             {jobs} --yes"
        )
    }

    fn slurm(&self, question: &dyn Question) -> Result<String, String> {
        let alone = if question.time() == Time::Real {
            "# Real-time trials need exclusive use of the machine.\n#SBATCH --exclusive\n"
        } else {
            ""
        };
        Ok(format!(
            "#!/bin/sh\n\
             # Submit with sbatch. Add what the site requires: --partition, --account, --time.\n\
             # Afterwards: kiban lab merge OUT/merged OUT/shard-*\n\
             #SBATCH --job-name=kiban-lab\n\
             #SBATCH --array=1-{}\n\
             #SBATCH --ntasks=1\n\
             #SBATCH --cpus-per-task={}\n{alone}{}\n{}\n",
            self.shards,
            self.jobs,
            self.names()?,
            self.shard("$SLURM_ARRAY_TASK_ID")
        ))
    }

    fn hyperqueue(&self) -> Result<String, String> {
        Ok(format!(
            "#!/bin/sh\n\
             # Run it where 'hq' finds its server: it submits itself once for each shard, waits, and \
             merges.\n\
             {}\n\
             if [ -n \"${{HQ_TASK_ID:-}}\" ]; then\n    exec {}\nfi\n\
             hq submit --array 1-{} --cpus {} --name kiban-lab --wait -- sh \"$(realpath \"$0\")\"\n\
             exec \"$KIBAN\" lab merge \"$OUT/merged\" \"$OUT\"/shard-*\n",
            self.names()?,
            self.shard("$HQ_TASK_ID"),
            self.shards,
            self.jobs,
        ))
    }

    fn parallel(&self, question: &dyn Question) -> Result<String, String> {
        let (jobs, why) = match question.time() {
            Time::Real => ("1", "one at a time, because real time is measured"),
            Time::Virtual => ("100%", "one per processor, unless JOBS is set"),
        };
        Ok(format!(
            "#!/bin/sh\n\
             # GNU parallel: {why}. Run it again to resume.\n\
             {}\n\
             seq 1 {} | parallel --halt soon,fail=1 --jobs \"${{JOBS:-{jobs}}}\" '{}'\n\
             exec \"$KIBAN\" lab merge \"$OUT/merged\" \"$OUT\"/shard-*\n",
            self.names()?,
            self.shards,
            self.shard("{}"),
        ))
    }

    fn kubernetes(&self) -> Result<String, String> {
        let text = std::fs::read_to_string(&self.plan)
            .map_err(|error| format!("cannot read the plan {}: {error}", self.plan.display()))?;
        let plan: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let name = dns(&self.plan);
        let Script { shards, jobs, image, claim, .. } = self;
        let shard = format!(
            "k=$((JOB_COMPLETION_INDEX + 1)); exec kiban lab run /plan/plan.toml --out \
             /records/{name}/shard-$k --shard $k/{shards} --jobs {jobs} --yes"
        );
        Ok(format!(
            "# Apply with kubectl apply -f. The image must contain 'kiban'; the claim {claim} must be \
             writable from all nodes (ReadWriteMany).\n\
             # Afterwards, where the volume is mounted: kiban lab merge {name}/merged {name}/shard-*\n\
             apiVersion: v1\n\
             kind: ConfigMap\n\
             metadata:\n  name: {name}\n\
             data:\n  plan.toml: |2\n{plan}\
             ---\n\
             apiVersion: batch/v1\n\
             kind: Job\n\
             metadata:\n  name: {name}\n\
             spec:\n  completionMode: Indexed\n  completions: {shards}\n  parallelism: {shards}\n  \
             backoffLimit: {}\n\
             \x20 template:\n    spec:\n      restartPolicy: Never\n      containers:\n        - name: \
             kiban\n\
             \x20         image: {}\n          imagePullPolicy: IfNotPresent\n          command: [\"sh\", \"-c\", \"{shard}\"]\n\
             \x20         resources:\n            requests:\n              cpu: \"{jobs}\"\n\
             \x20         volumeMounts:\n            - name: plan\n              mountPath: /plan\n\
             \x20           - name: records\n              mountPath: /records\n\
             \x20     volumes:\n        - name: plan\n          configMap:\n            name: {name}\n\
             \x20       - name: records\n          persistentVolumeClaim:\n            claimName: {claim}\n",
            3 * shards,
            serde_json::to_string(image).map_err(|error| error.to_string())?,
        ))
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{} has no absolute path: {error}", path.display()))
}

/// Quotes a path for sh(1).
fn quoted(path: &Path) -> Result<String, String> {
    let text = path.to_str().ok_or_else(|| format!("{} is not valid UTF-8: rename it", path.display()))?;
    Ok(crate::output::quoted(text))
}

/// Returns a name that is a valid DNS label (RFC 1123), as required for Kubernetes objects.
fn dns(plan: &Path) -> String {
    let stem = plan.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain = stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
    let name: String = format!("kiban-{}", plain.collect::<String>()).chars().take(63).collect();
    name.trim_end_matches('-').to_owned()
}
