"""A second listener of a local broker, with TLS and logins, by properties of the broker alone."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from jobs.base.system.ports import HOST, free_ports
from jobs.local.broker.config import Ports, server_properties


def secure_listener(folder: Path, keystore: Path) -> tuple[str, dict[str, str]]:
    """Choose the ports of a broker with a listener for SASL_SSL.

    Args:
        folder: The broker's, which has not been started. Its ports are written there, where the broker finds them.
        keystore: PEM file with the private key (PKCS#8, not encrypted) and the certificate chain, for 127.0.0.1.

    Returns:
        The listener's address, and the broker's further properties.
    """
    plain, controller, secure = free_ports(3)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.properties").write_text(server_properties(Ports(plain, controller), {}))
    listeners = f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{secure}"
    listener = "listener.name.sasl_ssl"
    return f"{HOST}:{secure}", {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "advertised.listeners": listeners,
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{listener}.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(keystore.absolute()),
    }


def make_user(admin: AdminClient, name: str, password: str) -> None:
    """Make a user of a cluster, or change its password."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    admin.alter_user_scram_credentials([change])[name].result(30)
