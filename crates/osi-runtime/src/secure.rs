//! TLS below TPKT (IEC 62351-3 and -4): the whole TCP connection uses TLS, and TPKTs are sent inside it.
//!
//! Server           the server has a certificate and a key. If authorities are configured, it admits only
//!                  peers with a certificate from one of them.
//! Client           the client trusts the system's authorities or the configured ones, and may have a
//!                  certificate of its own.
//! Versions         TLS 1.2 and 1.3, with the cipher suites that rustls accepts, all of which have forward
//!                  secrecy.
//! Not implemented  renegotiation and session lifetimes (IEC 62351-3 §7); revocation lists.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// TLS settings of a listener and of a client.
pub use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The names of the PEM files with a certificate and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The certificate, followed by the intermediate certificates that lead to an authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// The reason why TLS settings were rejected.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read as PEM.
    File(PathBuf, pem::Error),
    /// A file that should contain certificates contains none.
    Empty(PathBuf),
    /// The certificate and key do not match, or are of an unsupported kind.
    Identity(PathBuf, rustls::Error),
    /// The authorities for peers' certificates are unusable.
    Authorities(PathBuf, VerifierBuilderError),
    /// The system has no trusted authorities.
    NoAuthorities,
    /// The host name is not a valid name in a certificate.
    Name(String, InvalidDnsNameError),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::File(path, error) => write!(f, "cannot read {} as PEM: {error}", path.display()),
            TlsError::Empty(path) => write!(f, "{} contains no certificate", path.display()),
            TlsError::Identity(path, error) => {
                write!(f, "the certificate in {} cannot be used with its key: {error}", path.display())
            }
            TlsError::Authorities(path, error) => {
                write!(f, "the certificate authorities in {} cannot be used: {error}", path.display())
            }
            TlsError::NoAuthorities => {
                write!(
                    f,
                    "this system has no trusted certificate authorities: give a file with the peer's authorities"
                )
            }
            TlsError::Name(name, error) => {
                write!(f, "'{name}' is not a valid name in a certificate: {error}")
            }
        }
    }
}

impl std::error::Error for TlsError {}

/// Builds the TLS settings for a listener.
///
/// # Errors
/// See [`TlsError`].
pub fn acceptor(identity: &Identity, peers: Option<&Path>) -> Result<TlsAcceptor, TlsError> {
    acceptor_with(identity, peers, |path| File::open(path))
}

/// Like [`acceptor`], but opens the files with `open`.
///
/// # Errors
/// See [`TlsError`].
pub fn acceptor_with(
    identity: &Identity,
    peers: Option<&Path>,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<TlsAcceptor, TlsError> {
    let (certificates, key) = load(identity, &open)?;
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has them");
    let builder = match peers {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path, &open)?), provider());
            let verifier = verifier.build().map_err(|error| TlsError::Authorities(path.into(), error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates, key)
        .map_err(|error| TlsError::Identity(identity.certificate.clone(), error))?;
    Ok(Arc::new(config).into())
}

/// Builds the TLS settings for a client that trusts the authorities in the file `peers`, or the system's
/// authorities if there is no file.
///
/// # Errors
/// See [`TlsError`].
pub fn connector(peers: Option<&Path>, identity: Option<&Identity>) -> Result<TlsConnector, TlsError> {
    let roots = match peers {
        Some(path) => authorities(path, &|path| File::open(path))?,
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
            let (certificates, key) = load(identity, &|path| File::open(path))?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| TlsError::Identity(identity.certificate.clone(), error))?
        }
    };
    Ok(Arc::new(config).into())
}

/// Parses the name for which a peer's certificate must be issued.
///
/// # Errors
/// [`TlsError::Name`].
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|error| TlsError::Name(host.into(), error))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Opens a file.
type Open<'a> = &'a dyn Fn(&Path) -> io::Result<File>;

fn load(
    identity: &Identity,
    open: Open<'_>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let key = open(&identity.key).map_err(pem::Error::Io).and_then(PrivateKeyDer::from_pem_reader);
    let key = key.map_err(|error| TlsError::File(identity.key.clone(), error))?;
    Ok((certificates(&identity.certificate, open)?, key))
}

fn certificates(path: &Path, open: Open<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::File(path.into(), error);
    let file = open(path).map_err(|error| unreadable(pem::Error::Io(error)))?;
    let all = CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if all.is_empty() { Err(TlsError::Empty(path.into())) } else { Ok(all) }
}

fn authorities(path: &Path, open: Open<'_>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path, open)?);
    if roots.is_empty() { Err(TlsError::Empty(path.into())) } else { Ok(roots) }
}
