//! `kiban lab request`: splits HTTP requests into their parts.

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::net::request::names::Resolver;
use kiban_lab::net::request::{RequestOptions, Target, measure};
use kiban_osi_runtime::secure;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use url::{Position, Url};

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// Repeat an HTTP request, and show the shares of DNS, TCP, TLS, the server and the transfer.
///
/// Each round opens a connection and makes two requests on it. The verdict names a cause only if its evidence
/// explains at least half of the part that dominates. Names are looked up as by glibc, with
/// the settings in /etc/resolv.conf. The other end is any web server.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab request https://www.example.org/\
        \n  kiban lab request https://10.0.0.7:8443/health --ca authority.pem -c 100\
        \n  kiban lab request http://intranet/ --name-server 192.0.2.53     as if it were the only one\
        \n  kiban lab request https://www.example.org/ --json | jq .verdict.cause\
        \n\nExit status: 0 if all requests had a response, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Request {
    /// The URL: http or https.
    url: Url,
    /// Number of connections, each with two requests.
    #[arg(long, short, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Pause between two connections, in seconds.
    #[arg(long, default_value_t = 0.1, value_name = "SECONDS", value_parser = pause)]
    pause: f64,
    /// How long each step may take, in seconds.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// Name server to query instead of those in the resolver's configuration; can be repeated.
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = name_server)]
    name_server: Vec<SocketAddr>,
    /// Configuration file of the resolver.
    #[arg(long, default_value = "/etc/resolv.conf", value_name = "FILE")]
    resolv_conf: PathBuf,
    /// Trust the certificate authorities in this file (PEM) instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar.
    #[arg(long, short)]
    quiet: bool,
}

fn pause(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be 0 to 3600".into()),
    }
}

fn name_server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT)));
    address.map_err(|_| "write an address such as 192.0.2.53, or [2001:db8::1]:5353".into())
}

impl Request {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let target = self.target()?;
        let settings = match std::fs::read_to_string(&self.resolv_conf) {
            Ok(text) => text,
            // glibc has defaults for a host without this file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("cannot read {}: {error}", self.resolv_conf.display())),
        };
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let mut resolver = Resolver::of(&settings, hosts);
        if !self.name_server.is_empty() {
            resolver.servers.clone_from(&self.name_server);
        }
        let options = RequestOptions {
            count: self.count as usize,
            pause: Duration::from_secs_f64(self.pause),
            timeout: Duration::from_secs(self.timeout.into()),
            resolver,
        };
        let draw = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}").expect("it is well formed");
        let bar = ProgressBar::with_draw_target(Some(self.count.into()), draw).with_style(style);
        let report = measure(&target, &options, &|| bar.inc(1));
        bar.finish_and_clear();
        super::output::put(self.json, &report.map_err(|failure| failure.to_string())?)?;
        Ok(ExitCode::SUCCESS)
    }

    fn target(&self) -> Result<Target, String> {
        let url = &self.url;
        let (Some(host), Some(port), "http" | "https") =
            (url.host_str(), url.port_or_known_default(), url.scheme())
        else {
            return Err(format!("'{url}' is not a URL of a web server: write http://HOST/ or https://HOST/"));
        };
        let tls = if url.scheme() == "https" {
            let connector = secure::connector(self.ca.as_deref(), None).map_err(|error| error.to_string())?;
            let name =
                secure::server_name(host.trim_matches(['[', ']'])).map_err(|error| error.to_string())?;
            Some((connector.config().clone(), name))
        } else {
            None
        };
        Ok(Target {
            url: url.to_string(),
            host: host.to_owned(),
            port,
            authority: url[Position::BeforeHost..Position::AfterPort].to_owned(),
            path: url[Position::BeforePath..Position::AfterQuery].to_owned(),
            tls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_name_servers_are_parsed() {
        let request = |url: &str| Request {
            url: url.parse().expect("a URL"),
            count: 1,
            pause: 0.0,
            timeout: 1,
            name_server: Vec::new(),
            resolv_conf: PathBuf::new(),
            ca: None,
            json: false,
            quiet: true,
        };
        let target = request("http://user@web.example:8080/a?b=c#d").target().expect("it is HTTP");
        assert_eq!(
            (target.host.as_str(), target.port, target.path.as_str()),
            ("web.example", 8080, "/a?b=c")
        );
        assert_eq!(target.authority, "web.example:8080");
        assert_eq!(request("http://[2001:db8::1]/").target().expect("it is HTTP").port, 80);
        assert!(request("ftp://web.example/").target().is_err_and(|why| why.contains("https://HOST/")));
        assert_eq!(name_server("192.0.2.1"), Ok(SocketAddr::from(([192, 0, 2, 1], 53))));
        assert!(name_server("[2001:db8::1]:5353").is_ok() && name_server("dns").is_err());
    }
}
