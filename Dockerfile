# kiban in an image: the program, its libraries and manual pages, as the Debian package installs them.
#
#     docker build -t kiban .
#     docker build -t kiban --build-arg BASE=ubuntu:24.04 .       any image of Debian 12, Ubuntu 24.04 or newer
#     docker run --rm kiban lab --help
#
# The image needs no device, capability or option for RDMA: docs/ci.md.
ARG BASE=debian:12-slim
ARG RUST=rust:1-bookworm

FROM ${RUST} AS build
WORKDIR /src
COPY . .
RUN make deb && mv target/release/kiban_*.deb /kiban.deb

FROM ${BASE}
COPY --from=build /kiban.deb /kiban.deb
RUN apt-get update && apt-get install -y --no-install-recommends /kiban.deb && rm -rf /var/lib/apt/lists/* /kiban.deb
ENTRYPOINT ["kiban"]
