//! TLS under TPKT, as IEC 62351-3 and -4 have it: the same bytes as without, inside a TLS session from the first on.
//!
//! Server    its certificate and key; if told of authorities, it admits only peers with a certificate of theirs.
//! Client    the system's authorities or those it is told of; its own certificate, if it has one.
//! Versions  TLS 1.2 and 1.3, with the suites that rustls takes: all of them secret forward.
//! Left out  renegotiation and session lifetimes of IEC 62351-3 §7; revocation lists.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a listener and a client hold.
pub use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate and its private key, files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, and those between it and an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What a TLS setting is refused for.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    File(PathBuf, pem::Error),
    /// A file that should hold certificates holds none.
    Empty(PathBuf),
    /// Certificate and key do not go together, or are of a kind that is not taken.
    Identity(PathBuf, rustls::Error),
    /// The authorities for peers' certificates are of no use.
    Authorities(PathBuf, VerifierBuilderError),
    /// No authority is known to the system.
    NoAuthorities,
    /// What a host is called is no name that a certificate can have.
    Name(String, InvalidDnsNameError),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::File(path, error) => write!(f, "{} cannot be read as PEM: {error}", path.display()),
            TlsError::Empty(path) => write!(f, "{} holds no certificate", path.display()),
            TlsError::Identity(path, error) => {
                write!(f, "the certificate of {} and its key are not usable: {error}", path.display())
            }
            TlsError::Authorities(path, error) => {
                write!(f, "the authorities of {} are not usable: {error}", path.display())
            }
            TlsError::NoAuthorities => {
                write!(f, "this system knows no certificate authority: name a file of your peer's")
            }
            TlsError::Name(name, error) => {
                write!(f, "'{name}' is no name that a certificate can have: {error}")
            }
        }
    }
}

impl std::error::Error for TlsError {}

/// What a listener needs to speak TLS.
///
/// # Errors
/// See [`TlsError`].
pub fn acceptor(identity: &Identity, peers: Option<&Path>) -> Result<TlsAcceptor, TlsError> {
    let (certificates, key) = load(identity)?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has them");
    let builder = match peers {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider());
            let verifier = verifier.build().map_err(|error| TlsError::Authorities(path.into(), error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates, key)
        .map_err(|error| TlsError::Identity(identity.certificate.clone(), error))?;
    Ok(Arc::new(config).into())
}

/// What a client needs to speak TLS: `peers` holds the authorities to trust, else those of the system are.
///
/// # Errors
/// See [`TlsError`].
pub fn connector(peers: Option<&Path>, identity: Option<&Identity>) -> Result<TlsConnector, TlsError> {
    let roots = match peers {
        Some(path) => authorities(path)?,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(TlsError::NoAuthorities);
            }
            roots
        }
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has them");
    let builder = builder.with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (certificates, key) = load(identity)?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| TlsError::Identity(identity.certificate.clone(), error))?
        }
    };
    Ok(Arc::new(config).into())
}

/// The name that a peer's certificate has to bear.
///
/// # Errors
/// [`TlsError::Name`].
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|error| TlsError::Name(host.into(), error))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn load(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let key = PrivateKeyDer::from_pem_file(&identity.key)
        .map_err(|error| TlsError::File(identity.key.clone(), error))?;
    Ok((certificates(&identity.certificate)?, key))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::File(path.into(), error);
    let all = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if all.is_empty() { Err(TlsError::Empty(path.into())) } else { Ok(all) }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    if roots.is_empty() { Err(TlsError::Empty(path.into())) } else { Ok(roots) }
}
