//! `kiban osi`: tests the OSI layers below FTAM, by echoing values over associations and by probing what a
//! peer supports.

use crate::output::note;
use clap::{Args, Subcommand};
use kiban_lab::messages::PingPong;
use kiban_lab::table::Table;
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::tpkt::PORT;
use kiban_osi_runtime::association::{Association, Listener, Parameters};
use kiban_osi_runtime::echo;
use kiban_osi_runtime::echo::EchoReport;
use kiban_osi_runtime::probe;
use kiban_osi_runtime::probe::{Caller, Report, Target, Verdict};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::nic::messages::bar;
use crate::osi::peer::{Host, PeerArgs, VersionArgs, cannot_listen, password, runtime};

/// Maximum size of an echoed value, in bytes.
const VALUE_BYTES_MAX: i64 = 8 << 20;

/// Probe a peer's OSI layers 4 to 7, or measure round trips over them.
///
/// FTAM, MMS (IEC 61850), ICCP, CMIP, X.400 and X.500 run over these layers: transport class 0 over TCP
/// (RFC 1006), session, presentation and ACSE.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban osi probe plc.example.net               what the system at port 102 supports, layer by layer\
        \n  kiban osi probe 192.0.2.7:1102 --json         the same, for scripts\
        \n  kiban osi echo --listen 0.0.0.0:1102          answer associations until ctrl-c\
        \n  kiban osi echo 192.0.2.7:1102 --bytes 1000    measure round trips to it\
        \n\nExit status: 0 on success, 1 if the peer does not speak OSI, 2 for invalid arguments.")]
pub(crate) struct Osi {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Echo(Echo),
    Probe(Probe),
}

/// Echo values over associations: as a server, or as a client that measures round trips.
#[derive(Args)]
#[command(
    group = clap::ArgGroup::new("end").required(true).args(["host", "listen"]),
    after_help = "Examples:\
        \n  kiban osi echo --listen 0.0.0.0:1102\
        \n  kiban osi echo --listen [::]:3782 --tls --tls-cert cert.pem --tls-key key.pem\
        \n  kiban osi echo 192.0.2.7:1102 --count 1000 --bytes 4096\
        \n  kiban osi echo 192.0.2.7:3782 --tls --tls-ca cert.pem --json\
        \n\nExit status: 0 on success, 1 if the association failed, 2 for invalid arguments."
)]
struct Echo {
    /// The server [default port: 102].
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<Host>,
    /// Serve at this address instead; port 0 chooses one and prints it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Maximum number of concurrent associations, with --listen.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    associations: u32,
    /// Size of a value in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=VALUE_BYTES_MAX))]
    bytes: u32,
    /// Number of values.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    count: u64,
    /// Application context to request [default: that of kiban's echo].
    #[arg(long, value_name = "OID")]
    application: Option<Oid>,
    /// Abstract syntax of the values, which are octet strings [default: 1.0.8571.2.4].
    #[arg(long, value_name = "OID")]
    syntax: Option<Oid>,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    version: VersionArgs,
    /// Timeout for an answer, in seconds.
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar or report associations.
    #[arg(long, short)]
    quiet: bool,
}

/// Find out what a peer supports, layer by layer.
///
/// Every test uses its own connection. An accepted association is aborted at once; nothing is read or
/// written. A system that counts connections or failures will see about thirty of them.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban osi probe plc.example.net\
        \n  kiban osi probe 192.0.2.7 --tsel 0x0001 --ssel 0x0001 --psel 0x00000001\
        \n  kiban osi probe 192.0.2.7 --session-version 2\
        \n  kiban osi probe 192.0.2.7:3782 --tls --tls-ca ca.pem --json\
        \n  KIBAN_FTAM_PASSWORD=secret kiban osi probe 192.0.2.7 --user collector\
        \n\nExit status: 0 if the peer speaks RFC 1006, 1 if it does not, 2 for invalid arguments.")]
struct Probe {
    /// The peer [default port: 102].
    #[arg(value_name = "HOST[:PORT]")]
    host: Host,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    version: VersionArgs,
    /// Probe FTAM as this user. The password is read from KIBAN_FTAM_PASSWORD or a file, or prompted for.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Read the password from the first line of this file.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Timeout for an answer, in seconds.
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Osi {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.what {
            What::Echo(echo) => match echo.listen {
                Some(address) => echo.serve(address),
                None => echo.measure(),
            },
            What::Probe(probe) => probe.run(),
        }
    }
}

impl Echo {
    fn serve(self, address: SocketAddr) -> Result<ExitCode, String> {
        let tls = self.peer.acceptor()?;
        runtime(true)?.block_on(async {
            let timeout = Duration::from_secs(self.timeout);
            let listener = Listener::bind(address, Default::default(), tls, timeout)
                .map_err(|error| cannot_listen(address, &error))?;
            let at = listener.address().map_err(|error| cannot_listen(address, &error))?;
            let quiet = self.quiet;
            if !quiet {
                note!("listening on {at}; press ctrl-c to stop");
            }
            echo::serve(listener, self.associations as usize, move |report| {
                if !quiet {
                    note!("{}", line(&report));
                }
            })
            .await;
            Ok(ExitCode::SUCCESS)
        })
    }

    fn measure(self) -> Result<ExitCode, String> {
        let host = self.host.as_ref().expect("clap wants it without --listen");
        let port = host.port.unwrap_or(PORT);
        let syntax = self.syntax.unwrap_or(echo::OCTET_STRINGS);
        let mut parameters = Parameters {
            called: self.peer.called(),
            timeout: Duration::from_secs(self.timeout),
            tls: self.peer.tls(&host.name)?,
            ..Parameters::new(self.application.unwrap_or(echo::APPLICATION), &[syntax])
        };
        if let Some(versions) = self.version.session_version {
            parameters.stack.session.versions = versions;
        }
        let to = format!("{}:{port}", host.name);
        let bar = bar(self.count, self.quiet);
        let nanos = runtime(false)?.block_on(async {
            let failed = |failure: &dyn std::fmt::Display| format!("{to}: {failure}");
            let association = Association::connect(&host.name, port, parameters)
                .await
                .map_err(|failure| failed(&failure))?;
            let context = association.context(syntax).ok_or_else(|| {
                failed(&format!("the peer does not accept the abstract syntax {syntax}: see kiban osi probe"))
            })?;
            let step = |done| bar.set_position(done);
            let nanos = echo::round_trips(&association, context, self.bytes as usize, self.count, step).await;
            let nanos = nanos.map_err(|failure| failed(&failure))?;
            association.release(Vec::new()).await.map_err(|failure| failed(&failure))?;
            association.closed().await;
            Ok::<_, String>(nanos)
        });
        bar.finish_and_clear();
        let nanos = nanos?;
        let result = PingPong::of(self.bytes, nanos, 0.0);
        let text = if self.json {
            let mut value = json!(result);
            // Processor time is not measured here.
            value.as_object_mut().map(|object| object.remove("cpu_percent"));
            format!("{value:#}\n")
        } else {
            let title = format!("Echoes of {} bytes, {to}, over an association", self.bytes);
            table(title, &result).to_string()
        };
        crate::output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn table(title: String, result: &PingPong) -> Table {
    let mut table = Table::new(title).number_column("round trips");
    for head in ["min us", "p50 us", "p99 us", "p99.9 us", "max us"] {
        table = table.number_column(head);
    }
    let times = [result.min_us, result.p50_us, result.p99_us, result.p999_us, result.max_us];
    table.row(std::iter::once(result.count.to_string()).chain(times.map(|time| format!("{time:.2}"))));
    table
}

/// Formats the end of an association as one line.
fn line(report: &EchoReport) -> String {
    let EchoReport { peer, application, values, bytes, failure } = report;
    let what = match application {
        Some(application) => format!("application {application}, {values} values, {bytes} bytes echoed"),
        None => "no association".into(),
    };
    match failure {
        None => format!("{peer}: {what}, released"),
        Some(failure) => format!("{peer}: {what}; {failure}"),
    }
}

impl Probe {
    fn run(self) -> Result<ExitCode, String> {
        let port = self.host.port.unwrap_or(PORT);
        let target = Target {
            host: self.host.name.clone(),
            port,
            tls: self.peer.tls(&self.host.name)?,
            called: self.peer.called(),
            versions: self.version.session_version,
            caller: self.caller()?,
            timeout: Duration::from_secs(self.timeout),
        };
        let report = runtime(false)?.block_on(probe::probe(&target));
        let to = format!("{}:{port}", target.host);
        let text = if self.json {
            format!("{:#}\n", json!({ "target": to, "tpkt": report.tpkt, "findings": report.findings }))
        } else {
            findings(format!("What {to} supports"), &report).to_string()
        };
        crate::output::print(&text)?;
        Ok(if report.tpkt { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the identity for probing FTAM. A password is sent only if a user is given.
    fn caller(&self) -> Result<Caller, String> {
        let Some(user) = &self.user else { return Ok(Caller::default()) };
        let password = password(self.password_file.as_deref(), Some(user), &self.host.name)?;
        Ok(Caller { user: Some(user.clone()), password })
    }
}

fn findings(title: String, report: &Report) -> Table {
    let mut table =
        Table::new(title).text_column("layer").text_column("question").text_column("").text_column("answer");
    let mut layer = "";
    for finding in &report.findings {
        let verdict = match finding.verdict {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Unclear => "?",
        };
        // Name each layer once.
        let name = if finding.layer == layer { "" } else { finding.layer };
        layer = finding.layer;
        // The peer's text may contain control characters.
        let answer: String = finding.answer.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        table.row([name, &finding.question, verdict, &answer]);
    }
    table
}
