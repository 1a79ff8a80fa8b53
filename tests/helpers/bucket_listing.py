"""Listing of the S3 server's bucket, by what keys contain."""

from __future__ import annotations

from tests.helpers.object_server import BUCKET, KEY, SECRET, ObjectServer


def keys_with(server: ObjectServer, text: str) -> list[str]:
    """The keys of all objects that contain a text, in order."""
    # Imported here: only who starts this server needs it.
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    try:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", ()) if text in each["Key"])
    finally:
        client.close()
