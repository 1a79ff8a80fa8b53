"""Coming from Kafka Connect: conversion of its configuration, comparison with its tables, takeover of its position."""
