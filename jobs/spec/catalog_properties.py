"""Names of a catalog's properties, to find a misspelt one: PyIceberg's, Iceberg's Java ones and frazil's own."""

from __future__ import annotations

import difflib

# PyIceberg's. A test compares the types.
CATALOG_TYPES = ("rest", "sql", "hive", "glue", "dynamodb", "bigquery", "in-memory")

_GENERAL = (
    *("type", "uri", "warehouse", "py-catalog-impl", "py-io-impl", "io-impl", "clients", "app-name"),
    *("cache-enabled", "cache.expiration-interval-ms", "io.manifest.cache-enabled", "metrics-reporter-impl"),
    *("downcast-ns-timestamp-to-us-on-write", "unique-table-location"),
)
# `password` is put into the URI, in the form that it wants.
_SQL = ("password", "echo", "pool_pre_ping", "init_catalog_tables", "schema_version")
_REST = (
    *("credential", "token", "scope", "audience", "resource", "oauth2-server-uri", "prefix"),
    *("token-expires-in-ms", "token-refresh-enabled", "token-exchange-enabled", "auth.session-timeout-ms"),
    *("rest-page-size", "namespace-separator", "view-endpoints-supported", "scan-planning-mode"),
    *("rest-metrics-reporting-enabled", "rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
    *("rest.sigv4.max-retries", "rest.access-key-id", "rest.secret-access-key", "rest.session-token"),
    *("ssl.cabundle", "ssl.client.cert", "ssl.client.key"),
    *("snapshot-loading-mode",),
)
_HIVE = (
    *("ugi", "hive.hive2-compatible", "hive.kerberos-authentication", "hive.kerberos-service-name"),
    *("lock-check-min-wait-time", "lock-check-max-wait-time", "lock-check-retries"),
)
_GLUE = (
    *("glue.id", "glue.account-id", "glue.endpoint", "glue.region", "glue.profile-name", "glue.max-retries"),
    *("glue.retry-mode", "glue.access-key-id", "glue.secret-access-key", "glue.session-token"),
    *("glue.skip-archive", "glue.skip-name-validation", "glue.lakeformation-enabled"),
)
_OTHERS = (
    *("table-name", "dynamodb.region", "dynamodb.profile-name", "dynamodb.access-key-id", "dynamodb.endpoint"),
    *("dynamodb.secret-access-key", "dynamodb.session-token", "dynamodb.table-name"),
    *("gcp.bigquery.project-id", "gcp.bigquery.location", "gcp.bigquery.credential-file"),
    *("gcp.bigquery.credentials-info",),
)
STORE_AUTHORITIES = "s3.ssl.cabundle"
"""Property of the file with the authorities that sign certificates of S3: frazil's own, for all of its clients."""
_AWS = (
    *("client.region", "client.profile-name", "client.role-arn", "client.role-session-name", "client.factory"),
    *("client.access-key-id", "client.secret-access-key", "client.session-token", "client.credentials-provider"),
    *("client.assume-role.arn", "client.assume-role.region", "client.assume-role.external-id"),
    *("client.assume-role.session-name", "client.assume-role.timeout-sec"),
    *("client.refresh-credentials-enabled", "client.refresh-credentials-endpoint"),
)
_S3 = (
    *("s3.endpoint", "s3.region", "s3.resolve-region", "s3.access-key-id", "s3.secret-access-key"),
    *("s3.session-token", "s3.session-token-expires-at-ms", "s3.profile-name", "s3.anonymous", "s3.role-arn"),
    *("s3.role-session-name", "s3.proxy-uri", "s3.connect-timeout", "s3.request-timeout"),
    *("s3.force-virtual-addressing", "s3.path-style-access", "s3.retry-strategy-impl"),
    *("s3.server-side-encryption", "s3.sse-kms-key-id", "s3.sse.type", "s3.sse.key", "s3.sse.md5", "s3.acl"),
    *("s3.signer", "s3.signer.uri", "s3.signer.endpoint", "s3.remote-signing-enabled"),
    *("s3.client-factory-impl", "s3.crt.enabled", "s3.crt.max-concurrency", "s3.access-grants.enabled"),
    *("s3.access-grants.fallback-to-iam", "s3.analytics-accelerator.enabled", "s3.multipart.num-threads"),
    *("s3.multipart.part-size-bytes", "s3.multipart.threshold", "s3.staging-dir", "s3.checksum-enabled"),
    *("s3.use-arn-region-enabled", "s3.chunked-encoding-enabled", "s3.delete.batch-size"),
    *("s3.delete.num-threads", "s3.delete-enabled", "s3.write.storage-class", "s3.write.table-tag-enabled"),
    STORE_AUTHORITIES,
    *("s3.write.namespace-tag-enabled", "s3.acceleration-enabled", "s3.dualstack-enabled"),
    *("s3.cross-region-access-enabled", "s3.preload-client-enabled", "s3.retry.num-retries"),
    *("s3.retry.min-wait-ms", "s3.retry.max-wait-ms", "s3.directory-bucket.list-prefix-as-directory"),
)
_GCS = (
    *("gcs.oauth2.token", "gcs.oauth2.token-expires-at", "gcs.project-id", "gcs.access", "gcs.consistency"),
    *("gcs.cache-timeout", "gcs.requester-pays", "gcs.session-kwargs", "gcs.service.host"),
    *("gcs.default-bucket-location", "gcs.version-aware", "gcs.client-lib-token", "gcs.decryption-key"),
    *("gcs.encryption-key", "gcs.user-project", "gcs.channel.read.chunk-size-bytes", "gcs.no-auth"),
    *("gcs.channel.write.chunk-size-bytes", "gcs.oauth2.refresh-credentials-endpoint"),
    *("gcs.oauth2.refresh-credentials-enabled", "gcs.impersonate.service-account", "gcs.delete.batch-size"),
    *("gcs.impersonate.lifetime-seconds", "gcs.impersonate.delegates", "gcs.impersonate.scopes"),
)
_ADLS = (
    *("adls.connection-string", "adls.credential", "adls.account-name", "adls.account-key", "adls.sas-token"),
    *("adls.tenant-id", "adls.client-id", "adls.client-secret", "adls.account-host", "adls.token", "adls.anon"),
    *("adls.blob-storage-authority", "adls.dfs-storage-authority", "adls.blob-storage-scheme"),
    *("adls.dfs-storage-scheme", "adls.read.block-size-bytes", "adls.write.block-size-bytes"),
    *("adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"),
    *("adls.token-credential-provider", "adls.refresh-credentials-endpoint", "adls.refresh-credentials-enabled"),
)
KNOWN = frozenset((*_GENERAL, *_SQL, *_REST, *_HIVE, *_GLUE, *_OTHERS, *_AWS, *_S3, *_GCS, *_ADLS))
# What follows is named by whoever writes it.
_FREE = (
    *("header.", "table-default.", "table-override.", "jdbc.", "rest.client.", "rest.auth.", "http-client.", "hf."),
    *("hdfs.", "oss.", "client.assume-role.tags.", "client.credentials-provider.", "s3.write.tags.", "lock."),
    *("s3.delete.tags.", "s3.access-points.", "s3.analytics-accelerator.", "adls.sas-token.", "encryption."),
    *("adls.sas-token-expires-at-ms.", "adls.connection-string.", "adls.token-credential-provider."),
)
STORE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hf.", "hdfs.", "oss.", "py-io-impl", "http-client.")
"""How the properties begin that say how to get at a table's files."""
# A name with one letter wrong, or without its prefix; names of the same kind are less alike.
_NEAR = 0.8


def nearest_property(name: str) -> str | None:
    """The known property that a name is a misspelling of, as it seems; None if the name is known, or near to none."""
    if name in KNOWN or name.startswith(_FREE):
        return None
    return next(iter(difflib.get_close_matches(name.casefold(), sorted(KNOWN), 1, _NEAR)), None)
