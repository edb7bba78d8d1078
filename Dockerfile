# Two images from one file:
#     docker build -t moongate .                       gateway: the binary and what it loads, no shell, no package manager
#     docker build -t moongate:full --target full .    the same on Debian with Node.js and uv, for npx and uvx servers
# Needs a builder with cache mounts (Docker from 23, Podman, Buildah), and no newer syntax than those share.

# Release lines, not digests: rebuilding with --pull brings their security fixes. A release pins digests by overriding.
ARG DEBIAN=bookworm
ARG RUST=1.95
ARG NODE=24
ARG UV=0.13.9

# ---- what the dependencies are built from ----

# The manifests, with an empty source for each library, program and bench that they name. They stay as they are when
# only code changes, and then the layer with the dependencies below is used again.
FROM docker.io/library/rust:${RUST}-${DEBIAN} AS manifests
WORKDIR /src
COPY Cargo.toml Cargo.lock ARCHITECTURE.md ./
COPY crates crates
RUN mkdir src && touch src/main.rs src/lib.rs \
    && find crates -type f ! -name Cargo.toml ! -name lib.rs ! -name main.rs ! -name build.rs \
        ! -path '*/benches/*.rs' -delete \
    && find src crates -name '*.rs' \
        -exec sh -c 'for file; do echo "#![allow(warnings)] pub fn main() { }" > "$file"; done' sh {} + \
    && find . -type d -empty -delete \
    && find . -exec touch -d @0 {} +

# ---- the binary ----

FROM docker.io/library/rust:${RUST}-${DEBIAN} AS build
WORKDIR /src
# Kernels with pages of 64 KiB are common on arm64, and jemalloc must be built for the largest page that it will meet.
RUN if [ "$(uname -m)" = aarch64 ]; then \
        printf '[env]\nJEMALLOC_SYS_WITH_LG_PAGE = "16"\n' > "$CARGO_HOME/config.toml"; \
    fi
# The dependencies first, as a layer of their own: they take minutes and change seldom. The cache mount holds only
# downloads, so a builder that starts with an empty one is slower and nothing else.
COPY --from=manifests /src ./
RUN --mount=type=cache,id=moongate-crates,target=/usr/local/cargo/registry \
    cargo build --locked --profile dist --bin moongate \
    && rm -r src crates
COPY config config
COPY crates crates
COPY src src
# A copied file keeps its age, and cargo would take it for older than the empty one built above.
RUN --mount=type=cache,id=moongate-crates,target=/usr/local/cargo/registry \
    touch src/main.rs src/lib.rs crates/*/src/lib.rs \
    && cargo build --locked --profile dist --bin moongate

# ---- what both images start from ----

FROM docker.io/library/debian:${DEBIAN}-slim AS base
# tini is PID 1: it reaps what servers leave behind, which a program that is not an init does not. Packages are as new as the
# base image's release has them: a pinned one would vanish from the mirrors with its first security fix.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates tini \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
# The home is the one place that is written to: caches of npm and uv, and whatever servers keep. The group may write,
# too, and is the root group: platforms that pick a user id (`--user 12345:0`) leave a process only that.
RUN echo 'moongate:x:10001:0:moongate:/var/lib/moongate:/usr/sbin/nologin' >> /etc/passwd \
    && install -d -o 10001 -g 0 -m 0775 /var/lib/moongate
COPY --from=build /src/target/dist/moongate /usr/local/bin/moongate
COPY config/docker.toml /etc/moongate/moongate.toml

# The binary, tini, the libraries that they load, certificates and accounts. The packages' own records go along:
# scanners look for them there.
FROM base AS root
RUN mkdir -p /rootfs/tmp /rootfs/usr/bin /rootfs/var/lib/dpkg/status.d \
    && chmod 1777 /rootfs/tmp \
    && for word in $(ldd /usr/local/bin/moongate /usr/bin/tini); do \
        case $word in /*) cp --parents -L "${word%:}" /rootfs || exit 1 ;; esac; \
    done \
    && cp --parents -a /usr/local/bin/moongate /etc/moongate /var/lib/moongate /etc/passwd /etc/group \
        /usr/lib/os-release /etc/os-release /etc/debian_version /rootfs \
    && cp --parents -L /etc/ssl/certs/ca-certificates.crt /rootfs \
    && echo 'hosts: files dns' > /rootfs/etc/nsswitch.conf \
    && for package in libc6 libgcc-s1 ca-certificates tini; do \
        dpkg-query --status "$package" > "/rootfs/var/lib/dpkg/status.d/$package" || exit 1; \
    done

# ---- full: for servers that npx and uvx start ----

FROM docker.io/library/node:${NODE}-${DEBIAN}-slim AS node
FROM ghcr.io/astral-sh/uv:${UV} AS uv

FROM base AS full
# libatomic1: recent builds of Node.js load it. Python is for uv, which else downloads one on first use.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libatomic1 python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
COPY --from=uv /uv /uvx /usr/local/bin/
# What npm prints about itself would only fill the logs of servers.
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && install -d /usr/local/etc \
    && printf 'audit=false\nfund=false\nupdate-notifier=false\n' > /usr/local/etc/npmrc \
    && node --version && npm --version && npx --version && uv --version && uvx --version && python3 --version
LABEL org.opencontainers.image.title="moongate" \
      org.opencontainers.image.description="A standalone MCP gateway, with Node.js and uv for npx and uvx servers" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/moongate \
    MOONGATE_CONFIG=/etc/moongate/moongate.toml \
    MOONGATE_GATEWAY__LISTEN=0.0.0.0:8080 \
    MOONGATE_GATEWAY__ADMIN=0.0.0.0:9090
WORKDIR /var/lib/moongate
USER 10001:0
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/moongate", "health"]
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/moongate"]
CMD ["serve"]

# ---- gateway: the default, because it is last ----

FROM scratch AS gateway
COPY --from=root /rootfs /
# Fails the build if a library is missing.
RUN ["/usr/bin/tini", "--", "/usr/local/bin/moongate", "--version"]
LABEL org.opencontainers.image.title="moongate" \
      org.opencontainers.image.description="A standalone MCP gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin:/usr/bin \
    HOME=/var/lib/moongate \
    MOONGATE_CONFIG=/etc/moongate/moongate.toml \
    MOONGATE_GATEWAY__LISTEN=0.0.0.0:8080 \
    MOONGATE_GATEWAY__ADMIN=0.0.0.0:9090
WORKDIR /var/lib/moongate
USER 10001:0
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/moongate", "health"]
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/moongate"]
CMD ["serve"]
