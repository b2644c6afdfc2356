package org.openapitools.jackson.nullable;

import com.fasterxml.jackson.databind.module.SimpleModule;

/** Stands in for jackson-databind-nullable, see {@link JsonNullable}. */
public class JsonNullableModule extends SimpleModule {}
